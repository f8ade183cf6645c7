// Heartbeat sends heartbeats to the chief on its own thread while the evaluator works. The chief
// delays each reply by about a second, which sets the interval. A reply says whether the work is
// still needed.
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "evaluator/chief_link.h"

namespace muster::evaluator {

class Heartbeat {
 public:
  // `on_end` is called once, on the heartbeat's thread, when the chief reports that the job has
  // ended.
  Heartbeat(ChiefLink* link, std::function<void(const proto::JobEnd&)> on_end);
  ~Heartbeat();  // Stops the link, to end a call in progress.

  // Called when the evaluator starts to work on the checkpoint of `step`. -1: it prepares datasets
  // and models.
  void Begin(int64_t step);
  void Progress(int64_t batches_done, int64_t batches_total);
  void Pause();
  // Returns true if the current work is no longer needed: the job has ended, or the chief does not
  // know the checkpoint.
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
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;  // Counts calls of Begin, to detect late replies.
  bool unknown_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<proto::JobEnd> end_ ABSL_GUARDED_BY(mu_);
  proto::EvaluationReport report_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace muster::evaluator
