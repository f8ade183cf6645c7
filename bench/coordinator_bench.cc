// Measures a coordinator with many members: the time in which they join, and the cost of their
// heartbeats. The coordinator has a process of its own, so that its CPU time is separate from that
// of the members, which are light sessions of a second process over the real service on loopback.
//
//   coordinator_bench [members...]      default 250 500 1000 2000
//
// Prints a row for each size: the seconds from the first connection until all members have the
// roster of their generation, and until all have the message to start; the coordinator's CPU time
// for this; then, with a heartbeat a second from each member, the share of one core that the
// coordinator uses, the latency of a heartbeat's answer, and the coordinator's memory.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/coordinator/coordinator.h"
#include "common/base/logging.h"
#include "common/base/process/locks.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "common/session/session_client.h"

namespace muster::chief {
namespace {

constexpr Duration kHeartbeats = std::chrono::seconds(10);
constexpr Duration kPatience = std::chrono::seconds(120);

// The resources that the coordinator's process uses. It writes them on request.
struct Usage {
  double cpu_seconds = 0;
  double resident_mb = 0;
};

Usage OwnUsage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime),
          double(resident) * double(sysconf(_SC_PAGESIZE)) / 1e6};
}

std::string TaskOf(int rank) { return rank == 0 ? "chief:0" : fmt::format("worker:{}", rank - 1); }
std::string AddressOf(int rank) { return fmt::format("node-{:05}.train.example:2222", rank); }

// The text is as long as that of a real job of this size.
std::string ClusterText(int members) {
  std::string text = R"({"chief":[")" + AddressOf(0) + R"("],"worker":[)";
  for (int i = 1; i < members; ++i) text += fmt::format("{}\"{}\"", i > 1 ? "," : "", AddressOf(i));
  return text + "]}";
}
std::string JobText() { return std::string(1500, 'j'); }

template <typename T>
void WriteTo(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != sizeof value) std::_Exit(1);
}
template <typename T>
bool ReadFrom(int fd, T* value) {
  return read(fd, value, sizeof *value) == sizeof *value;
}

// The coordinator's process: its port to `out`, then its usage for each byte from `in`.
int RunCoordinator(int members, int in, int out) {
  CoordinatorOptions options;
  options.server.address = "127.0.0.1:0";
  for (int i = 0; i < members; ++i)
    options.members.push_back({*ParseTaskId(TaskOf(i)), AddressOf(i)});
  options.admission.run_id = "bench";
  options.admission.cluster_digest = "digest";
  options.admission.cluster = ClusterText(members);
  options.admission.job = JobText();
  auto coordinator = Coordinator::Start(std::move(options));
  if (!coordinator.ok()) {
    LogError("{}", Message(coordinator.status()));
    return 1;
  }
  WriteTo(out, (*coordinator)->port());
  for (char ask; ReadFrom(in, &ask);) WriteTo(out, OwnUsage());
  std::_Exit(0);  // the members have ended; no connection is left to close
}

// All simulated members. Their callbacks run on gRPC's threads.
class Members {
 public:
  Members(int count, int port) : members_(count) {
    for (int i = 0; i < count; ++i) {
      auto channel = rpc::MakeChannel(fmt::format("127.0.0.1:{}", port));
      members_[i].rank = i;
      members_[i].stub = proto::Coordinator::NewStub(*channel);
    }
  }

  void Connect() {
    const std::string cluster = ClusterText(size());
    for (One& m : members_) {
      absl::MutexLock lock(&m.mu);  // the first answer waits until `session` is set
      m.session = SessionClient::Open(
          m.stub.get(), HelloOf(m.rank, cluster),
          {[this, &m](const proto::CoordinatorMessage& message) { OnMessage(&m, message); },
           [this, &m](const grpc::Status& status) {
             Break(fmt::format("the session of {} ended: {}", TaskOf(m.rank),
                               status.error_message()));
           }});
    }
  }

  // Until all members have got so far. False: not within kPatience.
  bool WaitFor(const std::atomic<int>& count) {
    const MonotonicTime end = Clock::now() + kPatience;
    while (count < size() && !broken_ && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return count >= size() && !broken_;
  }

  // One heartbeat a second from each, spread evenly; how long each waited for its answer, in ms.
  std::vector<double> Beat(Duration time) {
    const MonotonicTime start = Clock::now();
    const auto beats = static_cast<int64_t>(Seconds(time) * size());
    for (int64_t n = 0; n < beats; ++n) {
      const std::chrono::duration<double> at(static_cast<double>(n) / size());
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Duration>(at));
      One& m = members_[n % size()];
      absl::MutexLock lock(&m.mu);
      m.sent = Clock::now();
      m.session->Send(ReportOf(m, Phase::kForward));
    }
    std::vector<double> all;
    for (One& m : members_) {
      absl::MutexLock lock(&m.mu);
      all.insert(all.end(), m.answers_ms.begin(), m.answers_ms.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  int size() const { return static_cast<int>(members_.size()); }

  std::atomic<int> have_roster = 0, started = 0;

 private:
  struct One {
    int rank = 0;
    std::unique_ptr<proto::Coordinator::Stub> stub;
    absl::Mutex mu;
    std::shared_ptr<SessionClient> session ABSL_GUARDED_BY(mu);
    uint64_t generation ABSL_GUARDED_BY(mu) = 0;
    std::optional<MonotonicTime> sent ABSL_GUARDED_BY(mu);  // the last heartbeat; unset: answered
    std::vector<double> answers_ms ABSL_GUARDED_BY(mu);
  };

  static proto::Hello HelloOf(int i, const std::string& cluster) {
    proto::Hello hello;
    hello.set_protocol(kControlProtocol);
    hello.set_task(TaskOf(i));
    hello.set_incarnation(1 + static_cast<uint64_t>(i));
    hello.set_cluster_digest("digest");
    hello.set_cluster(cluster);
    hello.set_job(JobText());
    hello.set_num_replicas(1);
    hello.set_host(AddressOf(i));
    hello.set_host_id(fmt::format("{:032x}", i));
    hello.set_data_address(fmt::format("10.0.{}.{}:2222", i / 250, i % 250));
    for (int cpu = 0; cpu < 16; ++cpu) hello.add_cpus(cpu);
    return hello;
  }
  static proto::Report ReportOf(const One& m, Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(m.mu) {
    proto::Report report;
    report.set_phase(static_cast<uint32_t>(phase));
    report.set_phase_age_ms(5);
    report.set_step(1);
    report.set_waiting(m.generation == 0);
    report.set_formed_generation(m.generation);
    return report;
  }
  void OnMessage(One* m, const proto::CoordinatorMessage& message) {
    absl::MutexLock lock(&m->mu);
    switch (message.kind_case()) {
      case proto::CoordinatorMessage::kWelcome:
        return m->session->Send(ReportOf(*m, Phase::kStarting));
      case proto::CoordinatorMessage::kFormation:
        m->generation = message.formation().generation();
        ++have_roster;
        return m->session->Send(ReportOf(*m, Phase::kForming));
      case proto::CoordinatorMessage::kStart:
        ++started;
        return;
      case proto::CoordinatorMessage::kRoster:
        return;
      case proto::CoordinatorMessage::kPulse:
        if (m->sent) m->answers_ms.push_back(Seconds(Clock::now() - *m->sent) * 1e3);
        return m->sent.reset();
      default:
        Break(fmt::format("{} received: {}", TaskOf(m->rank), message.ShortDebugString()));
    }
  }
  void Break(const std::string& why) {
    if (!broken_.exchange(true)) LogError("{}", why);
  }

  std::deque<One> members_;
  std::atomic<bool> broken_ = false;
};

int RunMembers(int count, int port, int ask, int answer) {
  auto usage = [&] {
    Usage now;
    WriteTo(ask, 'u');
    if (!ReadFrom(answer, &now)) std::_Exit(1);
    return now;
  };
  Members members(count, port);
  const Usage before = usage();
  const MonotonicTime start = Clock::now();
  members.Connect();
  if (!members.WaitFor(members.have_roster)) return 1;
  const double roster = Seconds(Clock::now() - start);
  if (!members.WaitFor(members.started)) return 1;
  const double started = Seconds(Clock::now() - start);
  const Usage joined = usage();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // the last of the joining
  const Usage quiet = usage();
  const MonotonicTime first_beat = Clock::now();
  const std::vector<double> ms = members.Beat(kHeartbeats);
  const double beating = Seconds(Clock::now() - first_beat);
  const Usage after = usage();
  if (ms.empty()) return 1;
  fmt::print(
      "{:>7} | {:>8.2f} {:>8.2f} {:>8.2f} | {:>6.3f} {:>8.2f} {:>8.2f} {:>9.0f} | {:>6.0f}\n",
      count, roster, started, joined.cpu_seconds - before.cpu_seconds,
      (after.cpu_seconds - quiet.cpu_seconds) / beating, ms[ms.size() / 2],
      ms[ms.size() * 99 / 100], static_cast<double>(ms.size()) / beating, after.resident_mb);
  std::fflush(stdout);
  std::_Exit(0);  // two thousand sessions are not taken leave of
}

// Forks both processes and waits for them. Whether all went well.
bool Run(int count) {
  int to_coordinator[2], from_coordinator[2];
  if (pipe(to_coordinator) != 0 || pipe(from_coordinator) != 0) return false;
  const pid_t coordinator = fork();
  if (coordinator == 0) {
    close(to_coordinator[1]);
    std::_Exit(RunCoordinator(count, to_coordinator[0], from_coordinator[1]));
  }
  close(to_coordinator[0]);
  close(from_coordinator[1]);
  int port = 0, status = 0;
  bool good = false;
  if (ReadFrom(from_coordinator[0], &port)) {
    const pid_t members = fork();
    if (members == 0) std::_Exit(RunMembers(count, port, to_coordinator[1], from_coordinator[0]));
    waitpid(members, &status, 0);
    good = status == 0;
  }
  close(to_coordinator[1]);
  close(from_coordinator[0]);
  waitpid(coordinator, &status, 0);
  return good && status == 0;
}

}  // namespace
}  // namespace muster::chief

int main(int argc, char** argv) {
  muster::EndLockCycleSearch();  // as every role does
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {250, 500, 1000, 2000};
  std::printf(
      "        | joining, s                | heartbeats, one a second each        | coord.\n"
      "members |   roster  started      CPU |  cores   p50 ms   p99 ms  answers/s | RSS MB\n");
  bool good = true;
  for (const int size : sizes) {
    std::fflush(stdout);  // not once more by each process that is forked
    good = muster::Run(size) && good;
  }
  return good ? 0 : 1;
}
