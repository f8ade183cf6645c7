// Tells the outside how training goes, on the process of rank 0: progress, TensorBoard summaries,
// and at the end result.json. The chief alone writes to model_dir, so there is one of these in a
// cluster. What cannot be written once training runs (a full disk) is said once in the log, and
// training goes on. Any thread may call: the loop's, those that bring evaluations, and the watchdog
// that ends a job whose loop does not come back.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "chief/result.h"
#include "common/base/clock.h"
#include "common/summary/event_writer.h"
#include "common/telemetry/progress.h"
#include "common/train/membership.h"

namespace muster {

struct PublisherOptions {
  std::string model_dir;             // empty: no files
  int64_t summary_every_steps = 50;  // 0: no summaries
  Json job;                          // resolved, as job.json gets it
  Json hardware = HardwareOfThisHost();
  Json versions = OwnVersions();
  std::unique_ptr<ProgressSink> progress;  // null: none
  // Asked before anything is written: an error (this chief was superseded) keeps it from being
  // written, and everything after it. Empty: nobody can take the folder.
  std::function<absl::Status()> fence;
};

class Publisher final : public Observer {
 public:
  // Touches nothing yet.
  static std::unique_ptr<Publisher> Open(PublisherOptions options);

  // Training is going to begin: writes job.json and removes an earlier verdict; `goes_on` says that
  // it belongs to this run, whose numbers it then adds to. A model_dir that is not writable is a
  // ConfigurationError. A job that was finished before, or is refused, must not come here.
  // REQUIRES: no other run owns model_dir (owner.json).
  absl::Status Begin(bool goes_on);

  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnEvaluateProgress(const std::string& split, int64_t done, int64_t total) override;

  // The end, whatever it is: writes result.json, and nothing after it. `generations`: how many
  // there were. Without Begin() it leaves a verdict that is there.
  absl::Status Finish(const absl::Status& verdict, int64_t generations,
                      const CheckpointRecord& checkpoints = {});

 private:
  explicit Publisher(PublisherOptions options) : options_(std::move(options)) {}
  void Show(const StepReport& report);
  void Summarize(const StepReport& report);
  void SayOnce(const absl::Status& status);

  PublisherOptions options_;
  const MonotonicTime started_ = Clock::now();
  RunRecord record_;
  RateMeter recent_;
  StartReport start_;
  int64_t epoch_ = 0, last_step_ = 0;
  std::unique_ptr<summary::EventWriter> train_;
  int64_t examples_since_summary_ = 0;
  double seconds_since_summary_ = 0;
  bool summaries_fail_ = false;
  bool begun_ = false;
};

}  // namespace muster
