// What a run has come through, whoever was its chief: how often it was gone on with by another
// chief's process, its generations, the losses and the time that each has cost. Kept in
// model_dir/recovery.json, which the next chief continues, and told in result.json as "recovery".
// Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "muster/json.h"

namespace muster {

class RunHistory {
 public:
  // `independent`: members come and go without a generation's end (parameter servers), so that a
  // loss is over at once.
  explicit RunHistory(bool independent = false) : independent_(independent) {}

  // A new process goes on with the run that left `earlier`, ToJson() of before; what is no such
  // thing counts as nothing. `killed`: the chief before did not come to its end, and gave its last
  // sign of life `silent_seconds` ago.
  void Continue(const Json& earlier, bool killed, double silent_seconds, MonotonicTime now);
  // A member was lost. What comes until the next finished step is one loss.
  void OnLost(const std::string& task, const std::string& why, MonotonicTime now);
  // A generation begins, with the state after `step`.
  void OnStart(int64_t step, MonotonicTime now);
  // A step is finished; true: with it a loss is over.
  bool OnStep(int64_t step, MonotonicTime now);
  // The run's end: a loss that is not over lasted until now.
  void OnEnd(MonotonicTime now);
  // Something else that training consists of.
  void OnProgress(MonotonicTime now);

  int64_t generations() const;
  // {"restarts", "generations", "losses", "seconds_lost", "last_losses": [{"step", "seconds",
  // "cause"}]}, the newest kMostLosses of them.
  Json ToJson() const;

 private:
  static constexpr size_t kMostLosses = 20;
  struct Loss {
    int64_t step = 0;    // with whose state training went on
    double seconds = 0;  // from the last progress before it to the next finished step
    std::string cause;
  };
  struct Open {
    Loss loss;
    MonotonicTime since;
    bool mustered = false;  // again
  };

  void AddLocked(Loss loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const bool independent_;
  mutable absl::Mutex mu_;
  int64_t restarts_ ABSL_GUARDED_BY(mu_) = 0, generations_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t losses_ ABSL_GUARDED_BY(mu_) = 0;
  double seconds_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Loss> last_ ABSL_GUARDED_BY(mu_);
  std::optional<Open> open_ ABSL_GUARDED_BY(mu_);
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;  // the last one
  std::optional<MonotonicTime> progress_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
