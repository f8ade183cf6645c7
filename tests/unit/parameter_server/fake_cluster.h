// A parameter-server job in one process, for tests of the Director. The Director is real and has
// its own port. Fake workers complete leases, and fake ps tasks add up the pushes. Every element of
// every shard is the number of pushed examples, so tests can check the content of a checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/parameter_server/director/director.h"
#include "common/rpc/server/server.h"
#include "tests/unit/parameter_server/fake_ps.h"
#include "tests/unit/parameter_server/fake_state.h"
#include "tests/unit/parameter_server/fake_worker.h"
#include "tests/unit/parameter_server/notes.h"

namespace muster::chief::testing {

inline constexpr Duration kPatience = std::chrono::seconds(60);
inline constexpr int64_t kAhead = 16;  // By so many steps workers may be ahead of the test.

class FakeCluster {
 public:
  struct Options {
    Job job;
    int workers = 2, servers = 2;
    int64_t global_batch_size = 20;  // The value that leases must have.
    int64_t train = 200, validation = 0, test = 0;
    Duration batch_time = std::chrono::milliseconds(1);
    std::set<Split> damaged = {};                   // Splits whose examples are all damaged.
    std::shared_ptr<FakeCallbacks> callbacks = {};  // May be null.
  };
  explicit FakeCluster(Options options);
  ~FakeCluster();

  // Starts a director on a thread and admits all tasks. `term` is the chief's term. Where Start,
  // RestartChief or AwaitThat fails, the test must end: ASSERT_TRUE(cluster.Start()).
  [[nodiscard]] ::testing::AssertionResult Start(uint32_t term = 1,
                                                 std::optional<checkpoint::Snapshot> restore = {});
  // Ends the director abruptly and starts that of a new chief, which admits the present tasks.
  [[nodiscard]] ::testing::AssertionResult RestartChief(
      std::optional<checkpoint::Snapshot> restore = {});
  absl::Status Await();  // Blocks until the director's Run returns. Returns its result.
  // Blocks until `condition` returns true. Workers push few batches more than the condition has
  // seen, so that they do not complete the job while the test is held up. Between two calls they
  // soon stop: wait for progress only with AwaitThat and Await.
  [[nodiscard]] ::testing::AssertionResult AwaitThat(const std::function<bool()>& condition);

  void LosePs(int task);
  void ReturnPs(int task);  // Admits a new process of the task.
  void CutPs(int task);     // The director regards the task as lost. Its process keeps its state.
  void HealPs(int task);    // Admits the process of CutPs again.
  void AdmitAllAgain();     // Admits the same processes again, as after broken sessions.
  void LoseWorker(int worker);
  void Mute(int worker);  // The worker makes no more calls, but is not lost.
  void StartWorker(int worker, bool again = false);

  Director& director() { return *director_; }
  FakePs& ps(int task) { return *ps_[task]; }
  Notes& notes() { return notes_; }
  std::string leases_address() const {
    absl::MutexLock lock(&mu_);
    return address_;
  }
  // Returns the shard's value on its primary.
  double value(int shard) const;
  // Returns how often each batch was pushed completely, by (epoch, begin).
  std::map<std::pair<int64_t, int64_t>, int> batches() const;
  std::vector<int> evaluated(int split) const;  // How often each example was evaluated.
  uint64_t incarnation(int worker) const { return incarnations_.at(worker); }

 private:
  void Admit(const std::string& task, uint64_t incarnation, bool again);

  const Options options_;
  std::vector<std::unique_ptr<FakePs>> ps_;
  std::vector<uint64_t> ps_incarnations_;
  std::set<int> absent_ps_;
  std::map<int, uint64_t> incarnations_;
  uint64_t next_incarnation_ = 100;
  uint32_t term_ = 1;
  Notes notes_;
  std::unique_ptr<Director> director_;
  std::unique_ptr<rpc::Server> server_;
  std::thread run_;
  std::atomic<bool> over_ = false;            // The director's Run has returned.
  std::atomic<int64_t> most_steps_ = kAhead;  // No batch is pushed after so many steps.
  absl::Status outcome_;
  WorkDone done_;
  std::map<int, std::unique_ptr<FakeWorker>> workers_;
  mutable absl::Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);  // The address of the Leases service.
};

}  // namespace muster::chief::testing
