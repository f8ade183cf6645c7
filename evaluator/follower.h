// Follows a chief's checkpoints: learns the job, waits for announcements, reads (or fetches) each
// checkpoint, has it evaluated and reports what came of it, until the job ends. What evaluation is,
// the options say; this part needs no LibTorch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/checkpoint/store.h"
#include "evaluator/chief_link.h"
#include "evaluator/heartbeat.h"
#include "evaluator/next_move.h"

namespace muster {

struct Evaluated {
  std::map<std::string, double> metrics;
  int64_t examples = 0;
  double seconds = 0;
};

struct FollowerOptions {
  ChiefLinkOptions link;
  checkpoint::FileSystem* files = nullptr;
  // Makes datasets and models for the chief's resolved job (JSON); called again should a restarted
  // chief have another one. kNotFound: there is nothing to evaluate by; then this process stays
  // till the end of the job, and tells of each checkpoint that it is left out.
  std::function<absl::Status(const std::string& job)> prepare;
  struct Hooks {
    std::function<void(int64_t done, int64_t total)> progress;  // batches
    std::function<bool()> cancelled;                            // then the result is not wanted
  };
  std::function<absl::StatusOr<Evaluated>(const checkpoint::Snapshot& snapshot, const Hooks& hooks)>
      evaluate;
  // This process is about to end with that, though `prepare` or `evaluate` may not have come back.
  // Called on another thread, at most once for each of Stop and the end of the job.
  std::function<void(const absl::Status& result)> on_ending;
};

class Follower {
 public:
  static absl::StatusOr<std::unique_ptr<Follower>> Make(FollowerOptions options);

  // OK: the job completed. Else what this process ends with: the job's own verdict, Preempted after
  // Stop, ConfigurationError where the chief refuses this evaluator, and for all that goes wrong
  // here a status of exit code 138. The message is the process's last line. Call once.
  absl::Status Run();
  // Any thread: Run returns soon. Tells the chief, which takes a second at most.
  void Stop();

 private:
  explicit Follower(FollowerOptions options) : options_(std::move(options)) {}
  absl::Status Follow();
  absl::Status Prepare();
  absl::Status Evaluate(const proto::Announcement& announced);
  absl::StatusOr<checkpoint::Snapshot> Read(const proto::Announcement& announced);
  absl::Status Tell(const proto::EvaluationReport& report, const std::string& name);
  absl::Status Finished(const absl::Status& why) const;
  // A restarted chief may know the checkpoint in hand later, and has no metrics of it.
  void NotDone() { state_.after_step = step_ - 1; }
  // The last line of a failure of this process's own.
  absl::Status OwnFailure(const absl::Status& failure) const;

  const FollowerOptions options_;
  std::unique_ptr<ChiefLink> link_;
  std::unique_ptr<Heartbeat> heartbeat_;
  FollowState state_;
  std::string nothing_;  // why there is nothing to evaluate; "" where there is
  int64_t step_ = -1;    // in hand
};

// What the end of the job means for this process.
absl::Status StatusOfEnd(const proto::JobEnd& end);

}  // namespace muster
