// Notifies the chief of tasks that have ended and will not be started again. Notices are sent in
// sequence on a separate thread. A chief that does not answer delays only the next notice.
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
  std::string address;    // The chief's address.
  std::string tf_config;  // The TF_CONFIG of the chief.
  std::string task;       // "worker:1"
  int64_t pid = 0;
  std::string why;
};

class DeathNotices {
 public:
  // `tell` is called on the thread, and must have its own timeout. Null: no notices are sent.
  explicit DeathNotices(std::function<void(const DeathNotice&)> tell);
  // Drops pending notices. Waits for a call in progress.
  ~DeathNotices();

  // Thread-safe. Does not wait.
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

}  // namespace muster
