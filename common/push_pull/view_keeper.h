// Holds the view that a worker's connections use. It requests a newer one on its own thread while
// any channel fails. The current view stays valid, and channels keep trying within it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/client.h"

namespace muster::ps {

class ViewKeeper {
 public:
  struct Options {
    // ClientOptions::next_view.
    std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
    std::function<void()> changed;  // A new view is available. Called on the keeper's thread.
    // No view is available for a channel that needs one. Called once, as the last call.
    std::function<void(absl::Status)> failed;
  };
  explicit ViewKeeper(Options options);
  ~ViewKeeper();  // Stops.
  // Waits for a running call of next_view. Neither function is called after that.
  void Stop();

  // Null before the first view.
  std::shared_ptr<const ClientView> current() const;
  // `channel` makes no progress in view `number` (0: there was none). The first reason is kept.
  void ReportFailure(const void* channel, uint64_t number, const absl::Status& why);
  void ReportSuccess(const void* channel);

 private:
  struct Waiting {
    absl::Status why;
    uint64_t since = 0;  // The number of calls of next_view that started before.
  };
  void Run();

  const Options options_;
  mutable absl::Mutex mutex_;
  absl::CondVar wanted_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const ClientView> view_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, Waiting> failing_ ABSL_GUARDED_BY(mutex_);  // By channel.
  std::thread thread_;
};

}  // namespace muster::ps
