// The view that a worker's connections go by. Asks for a newer one, on a thread of its own, while
// any channel fails; meanwhile the view stays, and channels go on trying within it.
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
    std::function<absl::StatusOr<ClientView>(uint64_t newer_than)> next_view;  // ClientOptions'
    std::function<void()> changed;             // there is another view; on the keeper's thread
    std::function<void(absl::Status)> failed;  // there is none for one who needs it; once, and last
  };
  explicit ViewKeeper(Options options);
  ~ViewKeeper();  // Stops.
  // Waits for a call of next_view that is under way. After that, neither function is called.
  void Stop();

  // Null before the first one.
  std::shared_ptr<const ClientView> current() const;
  // `channel` gets no further in view `number` (0: there was none). The first reason is kept.
  void ReportFailure(const void* channel, uint64_t number, const absl::Status& why);
  void ReportSuccess(const void* channel);

 private:
  struct Waiting {
    absl::Status why;
    uint64_t since = 0;  // calls of next_view that were begun before
  };
  void Run();

  const Options options_;
  mutable absl::Mutex mutex_;
  absl::CondVar wanted_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const ClientView> view_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, Waiting> failing_ ABSL_GUARDED_BY(mutex_);  // by channel
  std::thread thread_;
};

}  // namespace muster::ps
