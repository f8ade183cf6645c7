// A cluster's control plane in one process, for tests. The coordinator has a port that the kernel
// picks, and members are threads. The fake communicators transfer no data.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "chief/coordinator/coordinator.h"
#include "common/membership/member.h"

namespace muster::chief::testing {

// A communicator whose operations block until Abort.
class FakeCommunicator final : public collective::Communicator {
 public:
  // Abort waits for `gate` if it is not null.
  FakeCommunicator(int rank, int size, absl::Notification* gate = nullptr)
      : rank_(rank), size_(size), gate_(gate) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string Describe() const override { return "fake"; }
  collective::WorkPtr AllReduce(collective::Buffer, ReduceOp) override { return Barrier(); }
  collective::WorkPtr Broadcast(collective::Buffer, int) override { return Barrier(); }
  collective::WorkPtr AllGather(collective::Buffer, collective::Buffer) override {
    return Barrier();
  }
  collective::WorkPtr ReduceScatter(collective::Buffer, collective::Buffer, ReduceOp) override {
    return Barrier();
  }
  collective::WorkPtr Barrier() override;
  void Abort(absl::Status why) override;
  absl::Status status() const override;
  void set_timeout(Duration) override {}

 private:
  struct State {
    absl::Mutex mu;
    absl::Status status;
  };
  struct FakeWork;
  const int rank_, size_;
  absl::Notification* const gate_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A TCP port that a test can close like the port of a process that dies. A closed port refuses
// connections, but no other process can take it.
class FakePort {
 public:
  FakePort();
  ~FakePort();
  void Close();
  std::string address() const;

 private:
  int kept_ = -1, fd_ = -1;
  int port_ = 0;
};

// The limit of calls, and of waits for what must come: a busy machine holds a thread up for
// seconds.
inline constexpr auto kLimit = std::chrono::minutes(1);

// Only `resume` is so short that a test may wait until it passes. A test with a session that breaks
// and is to be resumed needs a longer one.
struct TestTimes : Timeouts {
  TestTimes(Duration short_resume = std::chrono::milliseconds(500))
      : Timeouts{.join = kLimit,
                 .rejoin = kLimit,
                 .resume = short_resume,
                 .heartbeat = kLimit,
                 .end = kLimit,
                 .phase = {}} {}
};

class TestCluster {
 public:
  // A cluster with a chief and `workers` workers. StartChief starts the coordinator.
  explicit TestCluster(int workers, TestTimes times = {});
  ~TestCluster();

  CoordinatorOptions coordinator_options();
  membership::MemberOptions member_options(int rank);
  absl::Status StartChief(CoordinatorOptions options);
  void StartChief() { ASSERT_TRUE(StartChief(coordinator_options()).ok()); }
  void StopChief() { coordinator_.reset(); }

  std::string TaskOf(int rank) const;
  int size() const { return workers_ + 1; }
  int port() const { return port_; }
  std::string address() const;
  Coordinator& coordinator() { return *coordinator_; }
  FakePort& data_port(int rank) { return *data_ports_[rank]; }

 private:
  const int workers_;
  const TestTimes times_;
  int port_;
  const std::string folder_;  // For flight records that do not reach the chief.
  std::vector<std::unique_ptr<FakePort>> data_ports_;
  std::unique_ptr<Coordinator> coordinator_;
};

// Makes a FakeCommunicator for each local replica, without contact to other members.
absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>> FakeForm(
    const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
    const std::function<bool()>& aborted);

// Members that run at the same time, each on its own thread. Each member joins, takes its first
// generation and calls its `body`.
class Crew {
 public:
  using Body = std::function<absl::Status(membership::Member&, Generation&)>;
  ~Crew() { Join(); }
  void Add(membership::MemberOptions options, Body body);
  void Join();
  membership::Member& member(size_t i) { return *members_[i]; }
  const absl::Status& result(size_t i) const { return results_[i]; }

 private:
  std::vector<std::unique_ptr<membership::Member>> members_;
  std::deque<absl::Status> results_;
  std::vector<std::thread> threads_;
};

// Waits in a barrier until the communicator is aborted. Returns the result of Explain.
absl::Status WaitInBarrier(membership::Member& member, Generation& generation);
// Calls WaitInBarrier in each generation until the job has ended.
absl::Status WaitForTheEnd(membership::Member& member, Generation& generation);
// Calls NextGeneration and finishes the loop at step 7, in one generation after the other until one
// is not over before all of its members have finished. `*last` is that one.
absl::Status FinishNext(membership::Member& member, int64_t last_step, Generation* last);
// Returns a body that waits in one generation and then calls FinishNext. The reason for the end of
// the first generation must contain `why`.
Crew::Body FinishAfter(std::string why);
// Finishes the loop at step 7.
absl::Status FinishAt7(membership::Member& member, Generation& generation);

// Returns a port on which nobody listens and that no other process can take.
int FreePort();

}  // namespace muster::chief::testing
