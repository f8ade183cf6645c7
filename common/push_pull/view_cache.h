// Holds the newest view for the channels of a PushPullClient. A view assigns each shard to a ps
// task (client.h). While a channel makes no progress, the thread of this object requests a newer
// view. The channels continue to try the current view until the newer view arrives. Thread-safe.
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
    // This object's thread calls all functions of Options.
    std::function<void()> changed;  // Called when a new view has arrived.
    // Called if next_view fails and a channel made no progress during the whole call of next_view.
    // After the call of `failed`, the object calls no function of Options.
    std::function<void(absl::Status)> failed;
  };
  explicit ViewCache(Options options);
  ~ViewCache();  // Calls Stop.
  // Ends the thread. Blocks until a running call of next_view returns. No function of Options is
  // called after Stop. Two threads must not call Stop at the same time.
  void Stop();

  // Returns the newest view. Returns null before the first view.
  std::shared_ptr<const ClientView> current() const;
  // Called by a channel that makes no progress in view `number`. `number` is 0 if the channel has
  // no view. Has no effect if the number of the current view is not `number`. Repeated failures of
  // a channel have no effect until the channel calls ReportSuccess or a new view arrives.
  void ReportFailure(const void* channel, uint64_t number, const absl::Status& why);
  // Called by a channel when it makes progress.
  void ReportSuccess(const void* channel);

 private:
  // A failure of a channel.
  struct Waiting {
    absl::Status why;
    uint64_t since = 0;  // The value of calls_ at the time of the failure.
  };
  void Run();

  const Options options_;
  mutable absl::Mutex mutex_;
  absl::CondVar wanted_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // The number of calls of next_view.
  std::shared_ptr<const ClientView> view_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, Waiting> failing_ ABSL_GUARDED_BY(mutex_);  // Keyed by channel.
  std::thread thread_;
};

}  // namespace muster::push_pull
