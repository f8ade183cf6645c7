// Heartbeat sends heartbeats to the chief, on its own thread, while the evaluator evaluates a
// checkpoint or loads datasets and models. Each reply says whether this work is still needed. After
// each reply, the thread sends the next heartbeat. The chief delays a reply by up to 1 s.
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
  ~Heartbeat();  // Calls ChiefLink::Stop, to end a call in progress.

  // Starts to send heartbeats. `step` is the step of the checkpoint that the evaluator evaluates.
  // -1 means that the evaluator prepares datasets and models.
  void Begin(int64_t step);
  void Progress(int64_t batches_done, int64_t batches_total);
  // Stops sending heartbeats until the next Begin.
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
  // The number of calls of Begin. Detects replies that belong to earlier work.
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  bool unknown_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<proto::JobEnd> end_ ABSL_GUARDED_BY(mu_);
  proto::EvaluationReport report_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace muster::evaluator
