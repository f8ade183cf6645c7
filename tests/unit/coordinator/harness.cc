#include "tests/unit/coordinator/harness.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace muster::chief::testing {
namespace {

using membership::Member;
using membership::MemberOptions;

// Returns a socket that is bound to `*port`. If it is 0, sets it to a port that the kernel picks.
// SO_REUSEADDR is set after the bind, so no other process gets the port, and a socket that also
// sets it may listen there.
int Bind(int* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (*port != 0) {
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(*port));
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  *port = ntohs(address.sin_port);
  return fd;
}

std::string NewFolder() {
  std::string name = std::filesystem::temp_directory_path() / "muster-control-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

}  // namespace

struct FakeCommunicator::FakeWork : collective::Work {
  explicit FakeWork(std::shared_ptr<State> s) : state(std::move(s)) {}
  absl::Status Wait() override {
    absl::MutexLock lock(&state->mu);
    state->mu.Await(absl::Condition(
        +[](State* s) { return !s->status.ok(); }, state.get()));
    return state->status;
  }
  bool Done() const override {
    absl::MutexLock lock(&state->mu);
    return !state->status.ok();
  }
  std::shared_ptr<State> state;
};

collective::WorkPtr FakeCommunicator::Barrier() { return std::make_shared<FakeWork>(state_); }

void FakeCommunicator::Abort(absl::Status why) {
  if (gate_ != nullptr) gate_->WaitForNotification();
  absl::MutexLock lock(&state_->mu);
  if (state_->status.ok()) state_->status = std::move(why);
}

absl::Status FakeCommunicator::status() const {
  absl::MutexLock lock(&state_->mu);
  return state_->status;
}

FakePort::FakePort() {
  kept_ = Bind(&port_);
  fd_ = Bind(&port_);
  EXPECT_EQ(listen(fd_, 64), 0);
}
FakePort::~FakePort() {
  Close();
  close(kept_);
}
void FakePort::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}
std::string FakePort::address() const { return fmt::format("127.0.0.1:{}", port_); }

int FreePort() {
  int port = 0;
  Bind(&port);
  return port;
}

TestCluster::TestCluster(int workers, TestTimes times)
    : workers_(workers), times_(times), port_(FreePort()), folder_(NewFolder()) {
  for (int i = 0; i < size(); ++i) data_ports_.push_back(std::make_unique<FakePort>());
}

TestCluster::~TestCluster() {
  coordinator_.reset();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

std::string TestCluster::TaskOf(int rank) const {
  return rank == 0 ? "chief:0" : fmt::format("worker:{}", rank - 1);
}

std::string TestCluster::address() const { return fmt::format("127.0.0.1:{}", port_); }

CoordinatorOptions TestCluster::coordinator_options() {
  CoordinatorOptions options;
  options.server.address = address();
  options.server.bind_timeout = std::chrono::seconds(2);
  for (int i = 0; i < size(); ++i)
    options.members.push_back(
        {*ParseTaskId(TaskOf(i)), i == 0 ? address() : fmt::format("host{}:2222", i)});
  options.admission.run_id = "run-a";
  options.admission.cluster_digest = "digest-a";
  options.admission.cluster = "cluster-a";
  options.admission.job = "job-a";
  options.admission.differing_cluster_field = [](const std::string&, const std::string&) {
    return "cluster.worker[1]";
  };
  options.admission.differing_job_key = [](const std::string& a, const std::string& b) {
    return a == b ? "" : "learning_rate";
  };
  options.decision = {times_};
  options.hello = options.admission.suspect = options.decision.suspect = kLimit;
  options.tick = std::chrono::milliseconds(20);
  return options;
}

MemberOptions TestCluster::member_options(int rank) {
  MemberOptions options;
  options.task = TaskOf(rank);
  options.chief_task = "chief:0";
  options.chief_address = address();
  options.is_chief = rank == 0;
  options.cluster_digest = "digest-a";
  options.cluster = "cluster-a";
  options.job = "job-a";
  options.data_address = data_ports_[rank]->address();
  options.host.name = fmt::format("host{}", rank);
  options.flight_folder = folder_;
  options.timeouts = {times_};
  options.timeouts.heartbeat_interval = std::chrono::milliseconds(100);
  options.timeouts.explain = kLimit;
  options.form = FakeForm;
  return options;
}

absl::Status TestCluster::StartChief(CoordinatorOptions options) {
  MUSTER_ASSIGN_OR_RETURN(coordinator_, Coordinator::Start(std::move(options)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>> FakeForm(
    const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
    const std::function<bool()>&) {
  int first = 0, total = 0;
  for (int rank = 0; rank < static_cast<int>(replicas_per_rank.size()); ++rank) {
    if (rank < spec.rank) first += replicas_per_rank[rank];
    total += replicas_per_rank[rank];
  }
  std::vector<std::unique_ptr<collective::Communicator>> made;
  for (int i = 0; i < replicas_per_rank[spec.rank]; ++i)
    made.push_back(std::make_unique<FakeCommunicator>(first + i, total));
  return made;
}

void Crew::Add(MemberOptions options, Body body) {
  members_.push_back(Member::Make(std::move(options)));
  results_.emplace_back(absl::OkStatus());
  threads_.emplace_back(
      [member = members_.back().get(), result = &results_.back(), body = std::move(body)] {
        absl::StatusOr<Generation> generation = member->NextGeneration(0);
        *result = generation.ok() ? body(*member, *generation) : generation.status();
      });
}

void Crew::Join() {
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

absl::Status WaitInBarrier(Member& member, Generation& generation) {
  member.SetPhase(Phase::kReduce, 12);
  const absl::Status status = generation.replicas[0]->Barrier()->Wait();
  return member.Explain(status);
}

absl::Status WaitForTheEnd(Member& member, Generation& generation) {
  while (true) {
    const absl::Status over = WaitInBarrier(member, generation);
    if (member.JobEnded()) return over;
    generation.replicas.clear();
    auto next = member.NextGeneration(11);
    if (!next.ok() || next->job_done) return next.status();
    generation = *std::move(next);
  }
}

Crew::Body FinishAfter(std::string why) {
  return [why = std::move(why)](Member& member, Generation& generation) {
    const absl::Status over = WaitInBarrier(member, generation);
    EXPECT_NE(Message(over).find(why), std::string::npos) << Message(over);
    return FinishNext(member, 11, &generation);
  };
}

absl::Status FinishNext(Member& member, int64_t last_step, Generation* last) {
  while (true) {
    last->replicas.clear();
    auto next = member.NextGeneration(last_step);
    if (!next.ok()) return next.status();
    *last = *std::move(next);
    absl::Status over = FinishAt7(member, *last);
    if (!absl::IsAborted(over)) return over;
  }
}

absl::Status FinishAt7(Member& member, Generation&) {
  member.SetPhase(Phase::kForward, 7);
  return member.Finish(7, absl::OkStatus());
}

}  // namespace muster::chief::testing
