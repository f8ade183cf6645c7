// RunHistory records the restarts of a run's chief, its generations, and each loss of members with
// the time that the loss cost. Publisher stores it in model_dir/recovery.json, so that the next
// chief can continue it. result.json has it as "recovery". Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "muster/json.h"

namespace muster::chief {

class RunHistory {
 public:
  // `independent`: the job has parameter servers. Training continues during a loss, so a loss costs
  // no time.
  explicit RunHistory(bool independent = false) : independent_(independent) {}

  // Continues a run in a new process. `earlier` is the result of ToJson() in an earlier process;
  // invalid content is ignored. `killed`: the previous chief did not end properly, and was last
  // alive `silent_seconds` ago.
  void Continue(const Json& earlier, bool killed, double silent_seconds, MonotonicTime now);
  // Records the loss of a member. Further losses until the next finished step count as the same
  // loss.
  void OnLost(const std::string& task, const std::string& why, MonotonicTime now);
  // Called when a generation begins from the state after `step`.
  void OnStart(int64_t step, MonotonicTime now);
  // Called when a step is finished. Returns true if this step ends a loss.
  bool OnStep(int64_t step, MonotonicTime now);
  // Called when the run ends. An open loss lasts until now.
  void OnEnd(MonotonicTime now);
  // Records progress other than a step, such as a part of a pass.
  void OnProgress(MonotonicTime now);

  int64_t generations() const;
  // Returns {"restarts", "generations", "losses", "seconds_lost", "last_losses": [{"step",
  // "seconds", "cause"}]} with the newest kMaxLosses losses.
  Json ToJson() const;

 private:
  static constexpr size_t kMaxLosses = 20;
  struct Loss {
    int64_t step = 0;    // Training resumed from the state after this step.
    double seconds = 0;  // Time from the last progress before the loss to the next finished step.
    std::string cause;
  };
  struct Open {
    Loss loss;
    MonotonicTime since;
    bool mustered = false;  // A generation has formed since the loss.
  };

  void AddLocked(Loss loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const bool independent_;
  mutable absl::Mutex mu_;
  int64_t restarts_ ABSL_GUARDED_BY(mu_) = 0, generations_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t losses_ ABSL_GUARDED_BY(mu_) = 0;
  double seconds_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Loss> last_ ABSL_GUARDED_BY(mu_);
  std::optional<Open> open_ ABSL_GUARDED_BY(mu_);
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;  // The last known step.
  std::optional<MonotonicTime> progress_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
