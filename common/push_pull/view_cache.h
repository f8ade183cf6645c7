// Holds the newest view for a worker's channels. While a channel fails, a thread of this object
// requests a newer view. Until it has one, channels continue to try the current view. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/client.h"

namespace muster::push_pull {

class ViewCache {
 public:
  struct Options {
    // ClientOptions::next_view.
    std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
    std::function<void()> changed;  // Called on this object's thread when a new view has arrived.
    // Called when next_view failed and a channel still needs a view. The thread then ends, and no
    // function is called again.
    std::function<void(absl::Status)> failed;
  };
  explicit ViewCache(Options options);
  ~ViewCache();  // Stops.
  // Blocks until a running call of next_view returns. No function is called after that. Two threads
  // must not call Stop at once.
  void Stop();

  // Null before the first view.
  std::shared_ptr<const ClientView> current() const;
  // Reports that `channel` makes no progress in view `number`, which is 0 if the channel had no
  // view. Has no effect if the current view is another one. The first reason of a channel is kept
  // until ReportSuccess or a new view.
  void ReportFailure(const void* channel, uint64_t number, const absl::Status& why);
  void ReportSuccess(const void* channel);

 private:
  struct Waiting {
    absl::Status why;
    uint64_t since = 0;  // How many calls of next_view had started before the failure.
  };
  void Run();

  const Options options_;
  mutable absl::Mutex mutex_;
  absl::CondVar wanted_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const ClientView> view_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, Waiting> failing_ ABSL_GUARDED_BY(mutex_);  // Keyed by channel.
  std::thread thread_;
};

}  // namespace muster::push_pull
