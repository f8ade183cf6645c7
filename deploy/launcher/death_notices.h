// Tells the chief which tasks have ended and are not started again, on a thread of its own and one
// after the other: a chief that does not answer holds up nobody but the next notice.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"

namespace muster {

struct DeathNotice {
  std::string address;    // the chief's
  std::string tf_config;  // and its cluster
  std::string task;       // "worker:1"
  int64_t pid = 0;
  std::string why;
};

class DeathNotices {
 public:
  // `tell` is called on the thread, and has a deadline of its own. Null: nothing is told.
  explicit DeathNotices(std::function<void(const DeathNotice&)> tell);
  // Drops what is still to be told; waits for a call that is under way.
  ~DeathNotices();

  // Any thread; does not wait.
  void Add(DeathNotice notice);

 private:
  void Run();

  const std::function<void(const DeathNotice&)> tell_;
  absl::Mutex mutex_;
  CondVar changed_;
  std::deque<DeathNotice> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // from the first notice on
};

}  // namespace muster
