// Tells the chief, from a thread of its own, that this evaluator is at work, and hears from it that
// the work is for nothing. The chief answers after about a second, which sets the pace.
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "evaluator/chief_link.h"

namespace muster {

class Heartbeat {
 public:
  // `on_end` is told once, on the thread, when the chief says that the job has ended.
  Heartbeat(ChiefLink* link, std::function<void(const proto::JobEnd&)> on_end);
  ~Heartbeat();  // Stops the link: a call under way ends.

  // Work on the checkpoint of `step` begins; -1: preparation.
  void Begin(int64_t step);
  void Progress(int64_t batches_done, int64_t batches_total);
  void Pause();
  // The work that Begin began is for nothing: the job has ended, or the chief does not know that
  // checkpoint (any more).
  bool futile() const;
  std::optional<proto::JobEnd> end() const;

 private:
  void Run();
  void Take(uint64_t round, const proto::EvaluationReply& reply);

  ChiefLink* const link_;
  const std::function<void(const proto::JobEnd&)> on_end_;
  mutable absl::Mutex mu_;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  bool active_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;  // counts Begin: an answer may come late
  bool unknown_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<proto::JobEnd> end_ ABSL_GUARDED_BY(mu_);
  proto::EvaluationReport report_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace muster
