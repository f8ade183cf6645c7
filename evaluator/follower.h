// Follower is the main loop of the evaluator, the task that evaluates the checkpoints of a running
// job. The Follower gets the job from the chief. It then waits for the chief's announcements of
// checkpoints. It reads or fetches each checkpoint, evaluates it and reports the result, until the
// job ends. The functions in FollowerOptions do the evaluation, so this class needs no LibTorch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/checkpoint/store.h"
#include "evaluator/chief_link.h"
#include "evaluator/heartbeat.h"
#include "evaluator/next_move.h"

namespace muster::evaluator {

struct Evaluated {
  std::map<std::string, double> metrics;
  int64_t examples = 0;
  double seconds = 0;
};

struct FollowerOptions {
  ChiefLinkOptions link;
  checkpoint::FileSystem* files = nullptr;
  // Creates datasets and models for `job`, the chief's resolved job as JSON. Called again if a
  // restarted chief has another job. Returns kNotFound if the job has no data to evaluate with. The
  // Follower then reports each checkpoint as skipped, until the job ends.
  std::function<absl::Status(const std::string& job)> prepare;
  struct Hooks {
    std::function<void(int64_t done, int64_t total)> progress;  // `done` and `total` count batches.
    // Returns true if the result is no longer needed. `evaluate` may then return early.
    std::function<bool()> cancelled;
  };
  // Evaluates one checkpoint.
  std::function<absl::StatusOr<Evaluated>(const checkpoint::Snapshot& snapshot, const Hooks& hooks)>
      evaluate;
  // Called when this process must end with `result`. Stop makes at most one call. The heartbeat's
  // thread makes at most one call, when the chief reports the end of the job. During a call,
  // `prepare` or `evaluate` may still run on another thread.
  std::function<void(const absl::Status& result)> on_ending;
};

class Follower {
 public:
  static absl::StatusOr<std::unique_ptr<Follower>> Make(FollowerOptions options);

  // Blocks until the job ends. Returns OK if the job has completed, and otherwise an error with the
  // job's exit code. Returns Preempted after Stop, and ConfigurationError if the chief refuses this
  // evaluator. If this process fails, returns an error with exit code 138. The process must print
  // the error message as its last line. Run must be called exactly once.
  absl::Status Run();
  // Makes Run return soon, and informs the chief. Blocks for at most one second. Thread-safe.
  void Stop();

 private:
  explicit Follower(FollowerOptions options) : options_(std::move(options)) {}
  absl::Status Follow();
  absl::Status Prepare();
  absl::Status Evaluate(const proto::Announcement& announced);
  absl::StatusOr<checkpoint::Snapshot> Read(const proto::Announcement& announced);
  absl::Status SendReport(const proto::EvaluationReport& report, const std::string& name);
  absl::Status Finished(const absl::Status& why) const;
  // Marks the current checkpoint as not evaluated. Called, for example, if the chief was restarted
  // and does not know this checkpoint. The chief may announce this checkpoint again.
  void NotDone() { state_.after_step = step_ - 1; }
  // Returns the result of Run for a failure of this process.
  absl::Status OwnFailure(const absl::Status& failure) const;

  const FollowerOptions options_;
  std::unique_ptr<ChiefLink> link_;
  std::unique_ptr<Heartbeat> heartbeat_;
  FollowState state_;
  std::string nothing_;  // Why the job has no data to evaluate with. "" if the job has data.
  int64_t step_ = -1;    // The step of the current checkpoint. -1: none.
};

}  // namespace muster::evaluator
