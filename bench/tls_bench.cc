// Measures the cost of TLS on data connections, compared with plaintext in one run: all-reduce over
// the TCP ring between two processes, push and pull with one parameter server in another process,
// and forming groups of 2, 16 and 64 members, with new sessions and with resumed ones.
//
//   tls_bench [--between HERE,THERE,NAMESPACE] [megabytes...]      default 1.4 22
//
// --between: all-reduce, push and pull between the address HERE of this network namespace and THERE
// of the other one, of that name; else on loopback.
//
// Rounds of both alternate, so that a noisy neighbour hits both; the best round's median is
// printed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/collective/group/formation.h"
#include "common/push_pull/client.h"
#include "common/push_pull/wire.h"
#include "common/security/identity.h"
#include "common/security/run_key.h"
#include "common/transport/listener/data_listener.h"
#include "ps/server_connection.h"
#include "ps/shard_store.h"

namespace muster {
namespace {

using collective::Communicator;

// The identities of tasks that hold one run key.
class Holders {
 public:
  Holders() {
    if (mkdtemp(folder_.data()) == nullptr || !security::WriteNewRunKey(folder_ + "/key").ok())
      std::abort();
  }
  ~Holders() { std::filesystem::remove_all(folder_); }
  // `resume`: sessions are kept, by address.
  std::shared_ptr<security::StreamSecurity> Issue(const std::string& task, bool resume = true) {
    std::shared_ptr<security::StreamSecurity> identity = *security::Identity::Make(
        {.self = {"0123456789abcdef", task}, .run_key = folder_ + "/key"});
    return resume ? identity : std::make_shared<Forgetful>(identity);
  }

 private:
  class Forgetful : public security::StreamSecurity {
   public:
    explicit Forgetful(std::shared_ptr<security::StreamSecurity> inner)
        : inner_(std::move(inner)) {}
    absl::StatusOr<security::SslPtr> NewSession(bool server, const std::string&) override {
      return inner_->NewSession(server, "");
    }
    absl::StatusOr<security::Peer> PeerOf(const SSL& session) override {
      return inner_->PeerOf(session);
    }

   private:
    const std::shared_ptr<security::StreamSecurity> inner_;
  };

  std::string folder_ = std::filesystem::temp_directory_path() / "muster-tls-bench-XXXXXX";
};

using transport::DataListener;

constexpr int kRounds = 7, kWarmUp = 3;
constexpr uint64_t kView = 1;
constexpr char kTicket[] = "benchmark ticket", kDigest[] = "00000000000000d1";

void Must(const absl::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "tls_bench: {}\n", Message(status));
  std::_Exit(1);
}

struct Hosts {
  std::string address[2] = {"127.0.0.1", "127.0.0.1"};  // of this process, and of the other one
  std::string other_namespace;                          // empty: this one
};

// Starts the other process, on the other host: 0 in it.
pid_t Fork(const Hosts& hosts) {
  const pid_t other = fork();
  if (other != 0) return other;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (hosts.other_namespace.empty()) return 0;
  const std::string path = "/var/run/netns/" + hosts.other_namespace;
  const int opened = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0 || setns(opened, CLONE_NEWNET) != 0)
    Must(absl::ErrnoToStatus(errno, "entering " + path));
  close(opened);
  return 0;
}

std::unique_ptr<DataListener> Listen(std::shared_ptr<security::StreamSecurity> security,
                                     const std::string& address = "127.0.0.1") {
  auto listener = DataListener::Create({.bind_address = address, .security = std::move(security)});
  Must(listener.status());
  return *std::move(listener);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Returns the CPU time of this process, which other processes affect less than the wall clock.
double CpuMs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Runs both in turn.
void Compare(const std::string& what, int iterations, const std::function<double(bool tls)>& ms) {
  double best[2] = {1e9, 1e9}, cpu[2] = {1e9, 1e9};
  for (int round = 0; round < kRounds; ++round) {
    for (const bool tls : {false, true}) {
      std::vector<double> all;
      double begin = 0;
      for (int i = 0; i < kWarmUp + iterations; ++i) {
        if (i == kWarmUp) begin = CpuMs();
        const double one = ms(tls);
        if (i >= kWarmUp) all.push_back(one);
      }
      cpu[tls] = std::min(cpu[tls], (CpuMs() - begin) / iterations);
      best[tls] = std::min(best[tls], Median(all));
    }
  }
  if (what.empty()) return;
  fmt::print(
      "{:<33} {:7.2f} ms, with TLS {:7.2f} ms: {:.2f} x; CPU of one side {:.2f} and {:.2f} ms: "
      "{:.2f} x\n",
      what, best[0], best[1], best[1] / best[0], cpu[0], cpu[1], cpu[1] / cpu[0]);
  std::fflush(stdout);
}

int IterationsFor(double megabytes) { return std::clamp(static_cast<int>(200 / megabytes), 9, 60); }

// ---- all-reduce

std::unique_ptr<Communicator> Form(DataListener& listener, const std::vector<std::string>& tasks,
                                   const std::vector<std::string>& addresses, int rank,
                                   uint64_t generation) {
  collective::GroupSpec spec;
  spec.generation = generation;
  spec.rank = rank;
  for (size_t i = 0; i < addresses.size(); ++i)
    spec.members.push_back({tasks[i], "host", addresses[i]});
  spec.ticket = kTicket;
  spec.backend = collective::Backend::kTcp;
  spec.spin = true;
  spec.progress_thread = false;
  auto formed = collective::FormGroup(spec, listener, nullptr);
  Must(formed.status());
  return *std::move(formed);
}

std::string Swap(const std::string& mine, int rank, const int (&pipes)[2][2]) {
  char text[64] = "", other[64];
  std::snprintf(text, sizeof text, "%s", mine.c_str());
  if (write(pipes[rank][1], text, sizeof text) != sizeof text) std::abort();
  if (read(pipes[1 - rank][0], other, sizeof other) != sizeof other) std::abort();
  return other;
}

void RunRank(int rank, const int (&pipes)[2][2], Holders& authority, const Hosts& hosts,
             const std::vector<double>& sizes) {
  const std::vector<std::string> tasks{"worker:0", "worker:1"};
  std::unique_ptr<DataListener> listeners[2];
  std::unique_ptr<Communicator> groups[2];
  for (const bool tls : {false, true}) {
    listeners[tls] = Listen(tls ? authority.Issue(tasks[rank]) : nullptr, hosts.address[rank]);
    std::vector<std::string> addresses(2, listeners[tls]->address());
    addresses[1 - rank] = Swap(listeners[tls]->address(), rank, pipes);
    groups[tls] = Form(*listeners[tls], tasks, addresses, rank, 1);
  }
  for (const double megabytes : sizes) {
    std::vector<float> data(static_cast<size_t>(megabytes * 250'000));
    const auto count = static_cast<int64_t>(data.size());
    const std::string what = fmt::format("all-reduce of {} MB, ring", megabytes);
    Compare(rank == 0 ? what : "", IterationsFor(megabytes), [&](bool tls) {
      Must(groups[0]->Barrier()->Wait());
      const auto start = Clock::now();
      Must(groups[tls]
               ->AllReduce({data.data(), count, collective::DataType::kFloat32}, ReduceOp::kSum)
               ->Wait());
      return Seconds(Clock::now() - start) * 1e3;
    });
  }
}

void AllReduce(Holders& authority, const Hosts& hosts, const std::vector<double>& sizes) {
  int pipes[2][2];
  if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0) std::abort();
  const pid_t other = Fork(hosts);
  if (other == 0) {
    RunRank(1, pipes, authority, hosts, sizes);
    std::_Exit(0);
  }
  RunRank(0, pipes, authority, hosts, sizes);
  waitpid(other, nullptr, 0);
}

// ---- push and pull

[[noreturn]] void RunServer(const push_pull::Layout& layout,
                            std::shared_ptr<security::StreamSecurity> security,
                            const std::string& bind, int report) {
  const auto listener = Listen(std::move(security), bind);
  const auto store = ps::ShardStore::Make({layout.chunks[0], {SgdSpec{}}});
  for (size_t c = 0; c < layout.chunks[0].size(); ++c)
    Must(store->Fill(static_cast<int>(c), std::vector<float>(layout.chunks[0][c].elements())));
  store->Admit(0, 1);
  const ps::ServeOptions serve{.layout = push_pull::LayoutNumber(kDigest),
                               .chunks = layout.chunks[0]};
  const transport::AbortSignal never;
  const auto admission = listener->Admit(kView, transport::kAnyone, kTicket);
  const std::string address = listener->address();
  if (write(report, address.data(), address.size()) < 0) std::abort();
  std::list<std::jthread> threads;
  for (uint64_t seen = 0;; listener->WaitForChange(&seen, std::chrono::seconds(1)))
    while (auto connection = admission->TakeAny())
      threads.emplace_back([&, c = std::shared_ptr(std::move(connection))] {
        (void)ps::Serve(*c, *store, serve, never);
      });
}

void PushPull(Holders& authority, const Hosts& hosts, double megabytes) {
  const auto elements = static_cast<int64_t>(megabytes * 250'000);
  const push_pull::ParameterServerOptions options;
  const push_pull::Layout layout = push_pull::MakeLayout(
      {{"parameter", {elements}}}, {.servers = 1, .chunk_bytes = options.chunk_bytes});
  pid_t servers[2];
  std::unique_ptr<DataListener> listeners[2];
  std::vector<float> parameters[2];
  std::unique_ptr<push_pull::PushPullClient> clients[2];
  uint64_t sequence[2] = {0, 0};
  for (const bool tls : {false, true}) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const auto security = tls ? authority.Issue("ps:0") : nullptr;
    servers[tls] = Fork(hosts);
    if (servers[tls] == 0) RunServer(layout, security, hosts.address[1], ends[1]);
    char address[64] = {};
    if (read(ends[0], address, sizeof address - 1) <= 0) std::abort();
    push_pull::ClientView view{kView, kTicket, {}};
    view.shards.push_back({0, address, "elsewhere"});
    listeners[tls] = Listen(tls ? authority.Issue("worker:0") : nullptr, hosts.address[0]);
    parameters[tls].resize(elements);
    push_pull::ClientOptions client;
    client.incarnation = 1;
    client.layout = layout;
    client.digest = kDigest;
    client.options = options;
    client.listener = listeners[tls].get();
    client.host_id = "here";
    client.next_view = [view](uint64_t newer_than) -> absl::StatusOr<push_pull::ClientView> {
      if (newer_than < kView) return view;
      std::this_thread::sleep_for(std::chrono::seconds(5));
      return DeadlinePassed("there is one view");
    };
    client.parameters.push_back({parameters[tls]});
    clients[tls] = *push_pull::PushPullClient::Make(std::move(client));
    std::fill_n(clients[tls]->gradients(0).data(), elements, 1.f);
  }
  Compare(fmt::format("push and pull of {} MB over TCP", megabytes), IterationsFor(megabytes),
          [&](bool tls) {
            const auto start = Clock::now();
            clients[tls]->Begin(++sequence[tls], 0, {0.01});
            for (size_t c = 0; c < layout.chunks[0].size(); ++c)
              clients[tls]->Launch(0, static_cast<int>(c));
            Must(clients[tls]->Finish().status());
            return Seconds(Clock::now() - start) * 1e3;
          });
  for (const bool tls : {false, true}) {
    clients[tls].reset();
    kill(servers[tls], SIGKILL);
    waitpid(servers[tls], nullptr, 0);
  }
}

// ---- handshakes

// All members in one process: each forms its part of the ring.
double FormAll(const std::vector<std::unique_ptr<DataListener>>& listeners,
               const std::vector<std::string>& tasks, uint64_t generation) {
  std::vector<std::string> addresses;
  for (const auto& listener : listeners) addresses.push_back(listener->address());
  std::vector<std::unique_ptr<Communicator>> formed(listeners.size());
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < listeners.size(); ++rank)
      threads.emplace_back([&, rank] {
        formed[rank] = Form(*listeners[rank], tasks, addresses, static_cast<int>(rank), generation);
      });
  }
  return Seconds(Clock::now() - start) * 1e3;
}

void Handshakes(Holders& authority, int members) {
  std::vector<std::string> tasks;
  for (int i = 0; i < members; ++i) tasks.push_back(fmt::format("worker:{}", i));
  std::vector<double> ms[3];  // plain, full, resumed
  for (int round = 0; round < kRounds; ++round) {
    for (const bool tls : {false, true}) {
      std::vector<std::unique_ptr<DataListener>> listeners;
      for (const std::string& task : tasks)
        listeners.push_back(Listen(tls ? authority.Issue(task) : nullptr));
      ms[tls].push_back(FormAll(listeners, tasks, 1));
      const double again = FormAll(listeners, tasks, 2);
      if (tls) ms[2].push_back(again);
    }
  }
  fmt::print(
      "forming a ring of {:2} in one process {:15.1f} ms, with TLS {:6.1f} ms, resumed {:6.1f} "
      "ms\n",
      members, Median(ms[0]), Median(ms[1]), Median(ms[2]));
  std::fflush(stdout);
}

// Measures the rate of one listener's thread. The other side of the handshakes uses another thread.
void Rate(Holders& authority) {
  constexpr int kDials = 400;
  for (const bool resume : {false, true}) {
    const auto a = Listen(authority.Issue("chief:0", resume)),
               b = Listen(authority.Issue("worker:0", resume));
    const auto admission = a->Admit(1, 0, kTicket);
    double seconds = 0;
    for (int pass = 0; pass < 2; ++pass) {  // the second resumes
      const auto start = Clock::now();
      std::list<std::unique_ptr<transport::Dialing>> under_way;
      int dialed = 0, done = 0;
      for (uint64_t seen = 0; done < kDials;) {
        while (dialed < kDials && under_way.size() < 16)
          under_way.push_back(b->Dial({a->address(),
                                       {1, ++dialed + pass * kDials, 0, 0, kTicket},
                                       Clock::now() + std::chrono::seconds(20)}));
        std::erase_if(under_way, [&](const auto& dialing) {
          const auto result = dialing->TakeResult();
          if (result) Must(result->status());
          done += result.has_value();
          return result.has_value();
        });
        while (admission->TakeAny() != nullptr) {
        }
        if (done < kDials) b->WaitForChange(&seen, std::chrono::milliseconds(5));
      }
      seconds = Seconds(Clock::now() - start);
    }
    fmt::print("one listener, one dialer: {:.0f} {} handshakes a second\n", kDials / seconds,
               resume ? "resumed" : "full");
  }
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  std::vector<double> sizes;
  muster::Hosts hosts;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string_view("--between") && i + 1 < argc) {
      const std::vector<std::string> parts = absl::StrSplit(argv[++i], ',');
      if (parts.size() != 3)
        return std::fputs("tls_bench: --between HERE,THERE,NAMESPACE\n", stderr), 2;
      hosts = {{parts[0], parts[1]}, parts[2]};
    } else {
      sizes.push_back(std::atof(argv[i]));
    }
  }
  if (sizes.empty()) sizes = {1.4, 22};
  muster::Holders authority;
  muster::AllReduce(authority, hosts, sizes);
  for (const double megabytes : sizes) muster::PushPull(authority, hosts, megabytes);
  if (!hosts.other_namespace.empty()) return 0;
  for (const int members : {2, 16, 64}) muster::Handshakes(authority, members);
  muster::Rate(authority);
}
