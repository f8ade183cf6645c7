// A cluster's control plane in one process: a coordinator on a port that the kernel picks, members
// as threads, communicators that only know how to be aborted.
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

namespace muster::testing {

// A barrier on it lasts until somebody aborts.
class FakeCommunicator final : public Communicator {
 public:
  // An abort waits for `gate`, where there is one.
  FakeCommunicator(int rank, int size, absl::Notification* gate = nullptr)
      : rank_(rank), size_(size), gate_(gate) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string Describe() const override { return "fake"; }
  WorkPtr AllReduce(Buffer, ReduceOp) override { return Barrier(); }
  WorkPtr Broadcast(Buffer, int) override { return Barrier(); }
  WorkPtr AllGather(Buffer, Buffer) override { return Barrier(); }
  WorkPtr ReduceScatter(Buffer, Buffer, ReduceOp) override { return Barrier(); }
  WorkPtr Barrier() override;
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

// A TCP port of this process that can be closed, as that of a process that dies: then it refuses
// connections, and nobody else takes it.
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

// Deadlines short enough for tests, long enough for a loaded machine.
struct TestTimes {
  Duration join = std::chrono::seconds(20);
  Duration heartbeat = std::chrono::seconds(10);
  Duration resume = std::chrono::milliseconds(500);
  Duration end = std::chrono::seconds(10);
  Duration rejoin = std::chrono::seconds(20);
};

class TestCluster {
 public:
  // Chief and `workers` workers; the coordinator is started by StartChief.
  explicit TestCluster(int workers, TestTimes times = {});
  ~TestCluster();

  CoordinatorOptions coordinator_options();
  MemberOptions member_options(int rank);
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
  const std::string folder_;  // for flight records that find no chief
  std::vector<std::unique_ptr<FakePort>> data_ports_;
  std::unique_ptr<Coordinator> coordinator_;
};

// A communicator for each local replica, whatever the peers do.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> FakeForm(
    const GroupSpec& spec, const std::vector<int>& replicas_per_rank,
    const std::function<bool()>& aborted);

// Members that train at the same time, each on a thread of its own: join, wait in a barrier until
// aborted, explain. `body` replaces what comes after the join.
class Crew {
 public:
  using Body = std::function<absl::Status(Member&, Generation&)>;
  ~Crew() { Join(); }
  void Add(MemberOptions options, Body body);
  void Join();
  Member& member(size_t i) { return *members_[i]; }
  const absl::Status& result(size_t i) const { return results_[i]; }

 private:
  std::vector<std::unique_ptr<Member>> members_;
  std::deque<absl::Status> results_;
  std::vector<std::thread> threads_;
};

// The loop of a member that waits for peers until something happens.
absl::Status WaitInBarrier(Member& member, Generation& generation);
// The same from generation to generation, until the job has ended.
absl::Status WaitForTheEnd(Member& member, Generation& generation);
// Waits in one generation, which ends for a reason that has `why` in it; finishes in the next one.
Crew::Body FinishAfter(std::string why);
// The loop of a member that is through.
absl::Status FinishAt7(Member& member, Generation& generation);

// A port on which nobody listens, and which stays this process's.
int FreePort();

}  // namespace muster::testing
