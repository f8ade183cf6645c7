#include "tests/unit/parameter_server/fake_cluster.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace muster::chief::testing {

FakeCluster::FakeCluster(Options options) : options_(std::move(options)) {
  for (int task = 0; task < options_.servers; ++task) {
    ps_.push_back(std::make_unique<FakePs>(task, options_.servers));
    ps_incarnations_.push_back(next_incarnation_++);
  }
  absl::MutexLock lock(&done_.mu);
  done_.evaluated[1].resize(options_.validation);
  done_.evaluated[2].resize(options_.test);
}

FakeCluster::~FakeCluster() {
  for (auto& [index, worker] : workers_) worker->Kill();
  if (director_ != nullptr) director_->Abort(PeerLost("the test is over"));
  if (run_.joinable()) run_.join();
  if (server_ != nullptr) server_->Shutdown(Duration::zero());
}

void FakeCluster::Admit(const std::string& task, uint64_t incarnation, bool again) {
  AdmittedMember member;
  member.task = *ParseTaskId(task);
  member.incarnation = incarnation;
  member.data_address = "127.0.0.1:1";
  member.host_id = "host";
  member.again = again;
  director_->OnAdmitted(member);
}

::testing::AssertionResult FakeCluster::Start(uint32_t term,
                                              std::optional<checkpoint::Snapshot> restore) {
  term_ = term;
  DirectorOptions options;
  options.job = options_.job;
  options.workers = options_.workers;
  for (const auto& ps : ps_) options.servers.push_back(ps->address());
  options.term = [term] { return term; };
  options.run_id = [] { return std::string("run"); };
  director_ = MakeDirector(std::move(options), FakeStates(options_.servers, options_.callbacks));
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {director_->service()});
  if (!server.ok()) return ::testing::AssertionFailure() << Message(server.status());
  server_ = *std::move(server);
  {
    absl::MutexLock lock(&mu_);
    address_ = fmt::format("127.0.0.1:{}", server_->port());
  }
  for (int task = 0; task < options_.servers; ++task)
    if (!absent_ps_.contains(task))
      Admit(fmt::format("ps:{}", task), ps_incarnations_[task], term > 1);
  if (term == 1) {
    for (int worker = 0; worker < options_.workers; ++worker) StartWorker(worker);
  } else {
    for (const auto& [index, worker] : workers_)
      if (!worker->dead()) Admit(fmt::format("worker:{}", index), worker->incarnation(), true);
  }
  DirectorStart start;
  start.train_examples = options_.train;
  start.validation_examples = options_.validation;
  start.test_examples = options_.test;
  start.restore = std::move(restore);
  start.observers = {&notes_};
  start.checkpoints = &notes_;
  over_ = false;
  run_ = std::thread([this, start] {
    outcome_ = director_->Run(start);
    over_ = true;
  });
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult FakeCluster::RestartChief(std::optional<checkpoint::Snapshot> restore) {
  director_->Abort(PeerLost("killed"));
  if (run_.joinable()) run_.join();
  server_->Shutdown(Duration::zero());
  server_.reset();
  director_.reset();
  return Start(term_ + 1, std::move(restore));
}

absl::Status FakeCluster::Await() {
  EXPECT_TRUE(AwaitThat([this] { return over_.load(); })) << "the job did not end";
  most_steps_ = std::numeric_limits<int64_t>::max();
  if (!over_) director_->Abort(ProgramError("the job did not end"));
  run_.join();
  for (auto& [index, worker] : workers_) {
    // After a success, workers receive that there is no more work. After a failure they are ended.
    if (!outcome_.ok() && !absl::IsCancelled(outcome_)) worker->Kill();
    worker->Join();
  }
  return outcome_;
}

::testing::AssertionResult FakeCluster::AwaitThat(const std::function<bool()>& condition) {
  const MonotonicTime deadline = Clock::now() + kPatience;
  while (!condition()) {
    most_steps_ = notes_.steps() + kAhead;
    if (Clock::now() >= deadline)
      return ::testing::AssertionFailure() << fmt::format("not within {:g} s", Seconds(kPatience));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ::testing::AssertionSuccess();
}

void FakeCluster::LosePs(int task) {
  absent_ps_.insert(task);
  ps_[task]->Replace();
  director_->OnLost({TaskType::kPs, task}, ps_incarnations_[task], "connection refused",
                    /*ended=*/true);
}

void FakeCluster::CutPs(int task) {
  absent_ps_.insert(task);
  director_->OnLost({TaskType::kPs, task}, ps_incarnations_[task], "no heartbeat", /*ended=*/false);
}

void FakeCluster::HealPs(int task) {
  absent_ps_.erase(task);
  Admit(fmt::format("ps:{}", task), ps_incarnations_[task], true);
}

void FakeCluster::ReturnPs(int task) {
  absent_ps_.erase(task);
  ps_incarnations_[task] = next_incarnation_++;
  Admit(fmt::format("ps:{}", task), ps_incarnations_[task], false);
}

void FakeCluster::AdmitAllAgain() {
  for (size_t task = 0; task < ps_.size(); ++task)
    Admit(fmt::format("ps:{}", task), ps_incarnations_[task], true);
  for (const auto& [index, worker] : workers_)
    Admit(fmt::format("worker:{}", index), worker->incarnation(), true);
}

void FakeCluster::Mute(int worker) { workers_.at(worker)->Mute(); }

void FakeCluster::LoseWorker(int worker) {
  workers_.at(worker)->Kill();
  director_->OnLost({TaskType::kWorker, worker}, workers_.at(worker)->incarnation(), "killed",
                    /*ended=*/true);
}

void FakeCluster::StartWorker(int index, bool again) {
  FakeWorker::Options worker;
  worker.index = index;
  worker.incarnation = incarnations_[index] = next_incarnation_++;
  for (const auto& ps : ps_) worker.ps.push_back(ps.get());
  worker.leases_address = [this] { return leases_address(); };
  worker.global_batch_size = options_.global_batch_size;
  worker.batch_time = options_.batch_time;
  worker.may_train = [this] { return notes_.steps() < most_steps_; };
  worker.damaged = options_.damaged;
  worker.done = &done_;
  Admit(fmt::format("worker:{}", index), worker.incarnation, again);
  workers_[index] = std::make_unique<FakeWorker>(std::move(worker));
}

double FakeCluster::value(int shard) const {
  for (const auto& ps : ps_)
    if (ps->serves(shard)) return ps->value(shard);
  return -1;
}

std::map<std::pair<int64_t, int64_t>, int> FakeCluster::batches() const {
  absl::MutexLock lock(&done_.mu);
  return done_.batches;
}

std::vector<int> FakeCluster::evaluated(int split) const {
  absl::MutexLock lock(&done_.mu);
  return done_.evaluated.at(split);
}

}  // namespace muster::chief::testing
