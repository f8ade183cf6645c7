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

namespace muster::ps {

class ViewCache {
 public:
  struct Options {
    // See ClientOptions::next_view.
    std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;
    std::function<void()> changed;  // Called on the keeper's thread when a new view is there.
    // Called when next_view failed and a channel still needs a view. The thread then ends, and no
    // function is called again.
    std::function<void(absl::Status)> failed;
  };
  explicit ViewCache(Options options);
  ~ViewCache();  // Stops.
  // Blocks until a running call of next_view returns. No function is called after that. Must not
  // run on two threads at once.
  void Stop();

  // Null before the first view.
  std::shared_ptr<const ClientView> current() const;
  // Reports that `channel` makes no progress in view `number`; 0 if it had no view. Ignored if the
  // current view is another one. The first reason of a channel is kept until ReportSuccess or a new
  // view.
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
  std::map<const void*, Waiting> failing_ ABSL_GUARDED_BY(mutex_);  // By channel.
  std::thread thread_;
};

}  // namespace muster::ps
