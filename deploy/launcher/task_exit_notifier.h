// TaskExitNotifier reports to the chief each task that has ended and will not be restarted. A
// thread sends the notices one after another. A chief that does not answer delays only the next
// notice.
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
  std::string tf_config;  // The TF_CONFIG of the chief.
  std::string task;       // "worker:1"
  int64_t pid = 0;
  std::string why;
};

class TaskExitNotifier {
 public:
  // `notify` sends one notice. It is called on the thread of this object and must have a timeout of
  // its own. Null: no notices are sent.
  explicit TaskExitNotifier(std::function<void(const TaskExitNotice&)> notify);
  // Drops pending notices. Blocks until a call in progress has returned.
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
  std::thread thread_;  // Started by the first notice.
};

}  // namespace muster::launcher
