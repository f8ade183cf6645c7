#include "deploy/launcher/task_exit_notifier.h"

#include <gmock/gmock.h>

#include <optional>
#include <vector>

#include "tests/unit/launcher/deadline.h"

namespace muster::launcher {
namespace {

using testing::ElementsAre;

// A chief that answers each notice when the test lets it.
class HeldChief {
 public:
  void Take(const TaskExitNotice& notice) {
    absl::MutexLock lock(&mutex_);
    tasks_.push_back(notice.task);
    ++under_way_;
    changed_.SignalAll();
    while (answers_ == 0) {
      if (changed_.WaitFor(&mutex_, kDeadline)) break;
    }
    --answers_;
    --under_way_;
  }
  void Answer() {
    absl::MutexLock lock(&mutex_);
    ++answers_;
    changed_.SignalAll();
  }
  bool AwaitNotices(size_t count) {
    absl::MutexLock lock(&mutex_);
    while (tasks_.size() < count) {
      if (changed_.WaitFor(&mutex_, kDeadline)) return false;
    }
    return true;
  }
  std::vector<std::string> tasks() {
    absl::MutexLock lock(&mutex_);
    return tasks_;
  }
  int under_way() {
    absl::MutexLock lock(&mutex_);
    return under_way_;
  }

 private:
  absl::Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> tasks_ ABSL_GUARDED_BY(mutex_);
  int answers_ ABSL_GUARDED_BY(mutex_) = 0;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(TaskExitNotifier, WhoAddsDoesNotWaitForTheChief) {
  HeldChief chief;
  TaskExitNotifier notices([&](const TaskExitNotice& notice) { chief.Take(notice); });
  for (const char* task : {"worker:0", "worker:1", "worker:2"})
    notices.Add({.address = "localhost:1",
                 .task = task,
                 .why = "was killed"});  // would wait for the first answer
  ASSERT_TRUE(chief.AwaitNotices(1));
  EXPECT_THAT(chief.tasks(), ElementsAre("worker:0"));
  for (int i = 0; i < 3; ++i) chief.Answer();
  ASSERT_TRUE(chief.AwaitNotices(3));
  EXPECT_THAT(chief.tasks(), ElementsAre("worker:0", "worker:1", "worker:2"));
}

TEST(TaskExitNotifier, TheEndWaitsForTheNoticeUnderWay) {
  HeldChief chief;
  std::optional<TaskExitNotifier> notices(
      [&](const TaskExitNotice& notice) { chief.Take(notice); });
  notices->Add({.address = "localhost:1", .task = "worker:0", .why = "was killed"});
  ASSERT_TRUE(chief.AwaitNotices(1));
  std::thread answer([&] { chief.Answer(); });
  notices.reset();
  EXPECT_EQ(chief.under_way(), 0);
  answer.join();
}

TEST(TaskExitNotifier, TellsNobodyWhereNobodyListens) {
  TaskExitNotifier notices(nullptr);
  notices.Add({.address = "localhost:1", .task = "worker:0", .why = "was killed"});
}

}  // namespace
}  // namespace muster::launcher
