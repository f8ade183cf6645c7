// Tells the outside how training goes, on the process of rank 0: progress, TensorBoard summaries,
// and at the end result.json. The chief alone writes to model_dir, so there is one of these in a
// cluster. What cannot be written once training runs (a full disk) is said once in the log, and
// training goes on. Any thread may call: the loop's, those that bring evaluations, and the watchdog
// that ends a job whose loop does not come back.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/fenced_files.h"
#include "chief/result.h"
#include "chief/run_folders.h"
#include "chief/run_history.h"
#include "common/base/clock.h"
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
  bool independent = false;    // RunHistory's
  uint32_t term = 0;           // of the owner whose the fence is
  double silent_seconds = -1;  // since the last sign of life of the owner before; below 0: none
  std::function<absl::Status()> check_disk;  // summary::EventWriter's
};

class Publisher final : public Observer {
 public:
  // Touches nothing yet.
  static std::unique_ptr<Publisher> Open(PublisherOptions options);

  // Training is going to begin: writes job.json and removes an earlier verdict; `goes_on` says that
  // it belongs to this run, whose numbers it then adds to; `has_begun` that the run had another
  // chief's process before, which may have saved nothing. A model_dir that is not writable is a
  // ConfigurationError. A job that was finished before, or is refused, must not come here.
  // REQUIRES: no other run owns model_dir (owner.json).
  absl::Status Begin(bool goes_on, bool has_begun = false);

  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnFinish(int64_t step) override;
  // Flushes all summaries: they survive this process. They are not synced to the disk, which would
  // hold training up; the crash of the host may take points that a checkpoint does not.
  void OnSave(int64_t step) override;
  void OnImages(const std::string& split, const ImageReport& report) override;
  void OnHistogram(const std::string& split, const HistogramReport& report) override;
  void OnScalars(const std::string& split, const ScalarReport& report) override;
  void OnTables(const TablesReport& report) override;
  void OnText(int64_t step, const std::string& tag, const std::string& text) override;
  void OnCallback(const std::string& name, const Json& note) override;
  void OnLeftOut(const std::string& split, int64_t examples,
                 const std::vector<std::string>& names) override;
  void OnEvaluateProgress(const std::string& split, int64_t done, int64_t total) override;

  // The evaluator's metrics of the checkpoint of `step`.
  void OnEvaluation(int64_t step, const std::map<std::string, double>& metrics);

  // What result.json tells as "parameter_server".
  void SetParameterServer(Json counts);

  // A member was lost; waits for nobody.
  void OnLost(const std::string& task, const std::string& why);

  // The end, whatever it is: writes result.json, and nothing after it. Without Begin() it leaves a
  // verdict that is there.
  absl::Status Finish(const absl::Status& verdict, const CheckpointRecord& checkpoints = {});

 private:
  explicit Publisher(PublisherOptions options);
  // float16: not of every skipped step, which would be many.
  void SaySkippedLocked(const StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SaySkippedInEpochLocked(const EpochReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShowLocked(const StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the epoch that has ended, or -1; says once what to do about much of it.
  double InputShareLocked(const EpochReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SummarizeLocked(const StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShowEpochLocked(const EpochReport& report, double input_share)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CatchUpLocked(const StartReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DescribeLocked(const StartReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SummarizePassLocked(const std::string& folder, int64_t step,
                           const std::map<std::string, double>& metrics)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SummarizeEvaluationLocked(int64_t step, const std::map<std::string, double>& metrics)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The writer of a folder; null where nothing is written.
  summary::EventWriter* WriterLocked(const std::string& folder, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SayOnceLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void KeepHistoryLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  PublisherOptions options_ ABSL_GUARDED_BY(mu_);
  const FencedFiles files_;
  RunHistory history_;  // has a lock of its own
  const MonotonicTime started_ = Clock::now();
  RunRecord record_ ABSL_GUARDED_BY(mu_);
  Json parameter_server_ ABSL_GUARDED_BY(mu_);
  RateMeter recent_ ABSL_GUARDED_BY(mu_);
  StartReport start_ ABSL_GUARDED_BY(mu_);
  int64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_step_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<RunFolders> folders_ ABSL_GUARDED_BY(mu_);  // null: no summaries
  int64_t examples_since_summary_ ABSL_GUARDED_BY(mu_) = 0;
  double seconds_since_summary_ ABSL_GUARDED_BY(mu_) = 0;
  // Of the steps since the last summary, and of those of the epoch that is under way.
  double input_since_summary_ ABSL_GUARDED_BY(mu_) = 0, steps_since_summary_
                                                        ABSL_GUARDED_BY(mu_) = 0;
  InputWait epoch_input_ ABSL_GUARDED_BY(mu_);
  bool said_input_ ABSL_GUARDED_BY(mu_) = false;
  // float16, of the epoch that is under way: what this process has heard of.
  int64_t steps_in_epoch_ ABSL_GUARDED_BY(mu_) = 0, skipped_in_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  double loss_scale_ ABSL_GUARDED_BY(mu_) = 0;  // after the last step
  // Evaluations that came before training had begun.
  std::map<int64_t, std::map<std::string, double>> early_ ABSL_GUARDED_BY(mu_);
  int64_t tables_step_ ABSL_GUARDED_BY(mu_) = -1;  // of the newest point of their curves
  bool summaries_fail_ ABSL_GUARDED_BY(mu_) = false;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;         // Begin
  bool started_once_ ABSL_GUARDED_BY(mu_) = false;  // OnStart
  bool finished_ ABSL_GUARDED_BY(mu_) = false;      // Finish
};

}  // namespace muster
