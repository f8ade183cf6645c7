// Follower is the main loop of the evaluator. It gets the job from the chief and waits for
// announcements of checkpoints. It reads or fetches each checkpoint, evaluates it and reports the
// result, until the job ends. FollowerOptions supplies the evaluation, so this class needs no
// LibTorch.
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
  // Creates datasets and models for the chief's resolved job (JSON). Called again if a restarted
  // chief has another job. Returns kNotFound if the job has no data to evaluate with. The process
  // then stays until the end of the job and reports each checkpoint as skipped.
  std::function<absl::Status(const std::string& job)> prepare;
  struct Hooks {
    std::function<void(int64_t done, int64_t total)> progress;  // `done` and `total` count batches.
    std::function<bool()> cancelled;  // If it returns true, the result is no longer needed.
  };
  std::function<absl::StatusOr<Evaluated>(const checkpoint::Snapshot& snapshot, const Hooks& hooks)>
      evaluate;
  // Called when this process is about to end with `result`. `prepare` or `evaluate` may still run
  // then. Called on another thread, at most once for Stop and once for the end of the job.
  std::function<void(const absl::Status& result)> on_ending;
};

class Follower {
 public:
  static absl::StatusOr<std::unique_ptr<Follower>> Make(FollowerOptions options);

  // Blocks until the job ends. Returns OK if the job completed, else the job's verdict. Returns
  // Preempted after Stop, ConfigurationError if the chief refuses this evaluator, and a status with
  // exit code 138 for any failure of this process. The message is the process's last line. Called
  // once.
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
  // Marks the current checkpoint as not evaluated, because a restarted chief may announce it again
  // and does not have its metrics.
  void NotDone() { state_.after_step = step_ - 1; }
  // Returns the status, with the process's last line, for a failure of this process.
  absl::Status OwnFailure(const absl::Status& failure) const;

  const FollowerOptions options_;
  std::unique_ptr<ChiefLink> link_;
  std::unique_ptr<Heartbeat> heartbeat_;
  FollowState state_;
  std::string nothing_;  // Why there is nothing to evaluate with. "" if there is something.
  int64_t step_ = -1;    // The step of the current checkpoint.
};

// Returns the status with which this process exits once the job has ended.
absl::Status StatusOfEnd(const proto::JobEnd& end);

}  // namespace muster::evaluator
