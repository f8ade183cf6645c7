// Publisher publishes the progress of training: progress lines, TensorBoard summaries, and
// result.json at the end. Only the chief writes to model_dir, so a cluster has one Publisher, in
// the chief's process. If a write fails during training (for example, because the disk is full),
// Publisher logs the failure once, and training continues. Thread-safe, because several threads
// call it: the training loop, the threads that deliver evaluations, and the watchdog that ends a
// job whose loop hangs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/model_dir/fenced_files.h"
#include "chief/model_dir/result.h"
#include "chief/model_dir/run_folders.h"
#include "chief/model_dir/run_history.h"
#include "common/base/clock.h"
#include "common/telemetry/progress.h"
#include "common/train/graph_observer.h"
#include "common/train/observer.h"

namespace muster::chief {

struct PublisherOptions {
  std::string model_dir;             // Empty: no files.
  int64_t summary_every_steps = 50;  // 0: no summaries.
  Json job;                          // The job with defaults filled in, for job.json.
  Json hardware = HardwareOfThisHost();
  Json versions = OwnVersions();
  std::unique_ptr<ProgressSink> progress;  // Null: none.
  // Called before each write. Returns an error if another chief has taken the folder. This write
  // and all later writes then fail. Null if no other chief can take the folder.
  std::function<absl::Status()> fence;
  bool independent = false;  // True for a job with parameter servers.
  uint32_t term = 0;         // The chief's term (Owner::term() in owner.h).
  // The number of seconds from the last write of owner.json by the previous owner of model_dir to
  // the start of this chief. Negative if there was no previous owner.
  double silent_seconds = -1;
  // Called before each write of summaries. The write fails with the returned error. Null: no check.
  std::function<absl::Status()> check_disk;
};

class Publisher final : public Observer, public GraphObserver {
 public:
  // Makes a Publisher. Does not access the disk.
  static std::unique_ptr<Publisher> Open(PublisherOptions options);

  // Prepares for training: writes job.json and removes an earlier result.json. If `continues` is
  // true, the earlier result.json belongs to this run. Begin then reads the totals in result.json
  // before it removes the file, and Publisher continues the totals. `has_begun` is true if an
  // earlier chief process began this run, whether or not it saved a checkpoint. Returns
  // ConfigurationError if model_dir is not writable. Not called if the job is already complete or
  // is refused. REQUIRES: this process owns model_dir (owner.h).
  absl::Status Begin(bool continues, bool has_begun = false);

  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnFinish(int64_t step) override;
  // Flushes all summaries, so that they survive a crash of this process. Does not sync them to the
  // disk, because a sync would delay training. After a crash of the host, the curves may therefore
  // lack points for steps that a checkpoint includes.
  void OnSave(int64_t step) override;
  void OnImages(const std::string& split, const ImageReport& report) override;
  void OnHistogram(const std::string& split, const HistogramReport& report) override;
  void OnScalars(const std::string& split, const ScalarReport& report) override;
  void OnTables(const TablesReport& report) override;
  void OnGraph(int64_t step, const std::vector<summary::GraphNode>& nodes) override;
  void OnText(int64_t step, const std::string& tag, const std::string& text) override;
  void OnCallback(const std::string& name, const Json& note) override;
  void OnLeftOut(const std::string& split, int64_t examples,
                 const std::vector<std::string>& names) override;
  void OnEvaluateProgress(const std::string& split, int64_t done, int64_t total) override;

  // Reports metrics that the evaluator task has measured on the checkpoint of `step`.
  void OnEvaluation(int64_t step, const std::map<std::string, double>& metrics);

  // Sets the field "parameter_server" of result.json.
  void SetParameterServer(Json counts);

  // Reports the loss of a member (a task in training). Does not block.
  void OnLost(const std::string& task, const std::string& why);

  // Writes result.json, whether or not the job has succeeded. `verdict` is the outcome of the job.
  // Publisher writes nothing afterwards. If Begin() was not called, Finish keeps an existing
  // result.json.
  absl::Status Finish(const absl::Status& verdict, const CheckpointRecord& checkpoints = {});

 private:
  explicit Publisher(PublisherOptions options);
  // float16: logs skipped steps, whose gradients were not finite. Logs only the 1st, the 10th, the
  // 100th skipped step and so on, and a skipped step that lowered the loss scale to the minimum.
  void LogSkippedLocked(const StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LogSkippedInEpochLocked(const EpochReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ShowLocked(const StepReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the fraction of the epoch's time that was spent waiting for input, -1 if unknown. If
  // the fraction is large, logs once how to reduce it.
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
  void SummarizeEndLocked(const absl::Status& verdict) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the writer for a TensorBoard folder of model_dir. Returns null if nothing can be
  // written.
  summary::EventWriter* WriterLocked(const std::string& folder, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LogOnceLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void WriteHistoryLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  PublisherOptions options_ ABSL_GUARDED_BY(mu_);
  const FencedFiles files_;
  RunHistory history_;  // Thread-safe, so mu_ does not guard it.
  const MonotonicTime started_ = Clock::now();
  RunRecord record_ ABSL_GUARDED_BY(mu_);
  Json parameter_server_ ABSL_GUARDED_BY(mu_);
  RateMeter recent_ ABSL_GUARDED_BY(mu_);
  StartReport start_ ABSL_GUARDED_BY(mu_);
  int64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_step_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<RunFolders> folders_ ABSL_GUARDED_BY(mu_);  // Null: no summaries.
  int64_t examples_since_summary_ ABSL_GUARDED_BY(mu_) = 0;
  double seconds_since_summary_ ABSL_GUARDED_BY(mu_) = 0;
  // Sums over the steps since the last summary.
  double input_since_summary_ ABSL_GUARDED_BY(mu_) = 0, steps_since_summary_
                                                        ABSL_GUARDED_BY(mu_) = 0;
  InputWait epoch_input_ ABSL_GUARDED_BY(mu_);
  bool logged_input_ ABSL_GUARDED_BY(mu_) = false;
  // float16: the numbers of all steps and of skipped steps that this process has counted in the
  // current epoch. Set to 0 when training resumes from a step other than last_step_.
  int64_t steps_in_epoch_ ABSL_GUARDED_BY(mu_) = 0, skipped_in_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  double loss_scale_ ABSL_GUARDED_BY(mu_) = 0;  // The loss scale after the last step.
  // Evaluations that arrived before OnStart, keyed by step.
  std::map<int64_t, std::map<std::string, double>> early_ ABSL_GUARDED_BY(mu_);
  // The metrics of the last pass of each split.
  std::map<std::string, std::map<std::string, double>> last_metrics_ ABSL_GUARDED_BY(mu_);
  // The step of the last summary of the embedding tables.
  int64_t tables_step_ ABSL_GUARDED_BY(mu_) = -1;
  bool summaries_fail_ ABSL_GUARDED_BY(mu_) = false;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;         // Set by Begin.
  bool started_once_ ABSL_GUARDED_BY(mu_) = false;  // Set by OnStart.
  bool finished_ ABSL_GUARDED_BY(mu_) = false;      // Set by Finish.
};

}  // namespace muster::chief
