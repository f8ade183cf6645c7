// DeathNotices reports to the chief each task that has ended and will not be restarted. A thread
// sends the notices one after another. A chief that does not answer delays only the next notice.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"

namespace muster::launcher {

struct DeathNotice {
  std::string address;    // The chief's address.
  std::string tf_config;  // The TF_CONFIG of the chief.
  std::string task;       // "worker:1"
  int64_t pid = 0;
  std::string why;
};

class DeathNotices {
 public:
  // `tell` sends one notice. It is called on the thread of this object and must have a timeout of
  // its own. Null: no notices are sent.
  explicit DeathNotices(std::function<void(const DeathNotice&)> tell);
  // Drops pending notices. Blocks until a call in progress has returned.
  ~DeathNotices();

  // Thread-safe. Does not block.
  void Add(DeathNotice notice);

 private:
  void Run();

  const std::function<void(const DeathNotice&)> tell_;
  absl::Mutex mutex_;
  CondVar changed_;
  std::deque<DeathNotice> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Started by the first notice.
};

}  // namespace muster::launcher
