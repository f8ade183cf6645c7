// RunHistory records three things about a run: the restarts of its chief, its generations, and the
// losses of members with the time that each loss cost. A member is a task in training. A generation
// is a period in which a fixed set of members trains together. Publisher (publisher.h) stores the
// history in model_dir/recovery.json, from which the next chief process continues. result.json
// contains the history as "recovery". Thread-safe.
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
  // `independent` is true for a job with parameter servers. In such a job, the loss of a member
  // costs no time, because training continues without it.
  explicit RunHistory(bool independent = false) : independent_(independent) {}

  // Continues the history of a run in a new process. `earlier` is the result of ToJson() in the
  // previous chief process. Invalid content is ignored. `killed` is true if the previous process
  // did not write result.json at its end. `silent_seconds` is the time in seconds since the last
  // sign of life of the previous process, negative if unknown.
  void Continue(const Json& earlier, bool killed, double silent_seconds, MonotonicTime now);
  // Records the loss of a member. In a job without parameter servers, all losses between two
  // finished steps count as one loss.
  void OnLost(const std::string& task, const std::string& why, MonotonicTime now);
  // Called when a generation begins from the state after `step`. If no loss was reported since the
  // previous generation began, a member must have joined or a link must have broken. This counts as
  // a loss.
  void OnStart(int64_t step, MonotonicTime now);
  // Called when a step is finished. Returns true if it is the first finished step of a generation
  // that began after a loss.
  bool OnStep(int64_t step, MonotonicTime now);
  // Called when the run ends. A loss ends at `now` if no later generation has finished a step.
  void OnEnd(MonotonicTime now);
  // Records progress other than a step, such as a part of a pass.
  void OnProgress(MonotonicTime now);

  int64_t generations() const;
  // Returns {"restarts", "generations", "losses", "seconds_lost", "last_losses": [{"step",
  // "seconds", "cause"}]}. "last_losses" has the newest kMaxLosses losses.
  Json ToJson() const;

 private:
  static constexpr size_t kMaxLosses = 20;
  struct Loss {
    int64_t step = 0;    // The step after which training resumed, or the last known step.
    double seconds = 0;  // From the last progress before the loss to the run's next step or end.
    std::string cause;
  };
  // A loss after which no step of a new generation has finished.
  struct Open {
    Loss loss;
    MonotonicTime since;
    bool mustered = false;  // True if a generation has begun since the loss.
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
