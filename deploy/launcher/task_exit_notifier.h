// TaskExitNotifier tells the chief of a job about each task that has ended and that the launcher
// will not restart. A separate thread sends the notices one after another. If the chief does not
// answer, only later notices wait, and the launcher does not block.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"

namespace muster::launcher {

struct TaskExitNotice {
  std::string address;    // The chief's address.
  std::string tf_config;  // The chief's value of TF_CONFIG.
  std::string task;       // The ended task, such as "worker:1".
  int64_t pid = 0;
  std::string why;
};

class TaskExitNotifier {
 public:
  // `notify` sends one notice. The thread of this object calls `notify`. `notify` must have a
  // timeout of its own. If `notify` is null, no notices are sent.
  explicit TaskExitNotifier(std::function<void(const TaskExitNotice&)> notify);
  // Drops pending notices. If `notify` is running, blocks until it has returned.
  ~TaskExitNotifier();

  // Thread-safe. Does not block.
  void Add(TaskExitNotice notice);

 private:
  void Run();

  const std::function<void(const TaskExitNotice&)> notify_;
  absl::Mutex mutex_;
  CondVar changed_;
  std::deque<TaskExitNotice> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // The first call of Add starts this thread.
};

}  // namespace muster::launcher
