// Observer is the interface that receives the training loop's reports. chief/ implements it. Only
// the first replica of rank 0 reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/push_pull/rows/table_statistics.h"
#include "common/summary/histogram.h"
#include "common/train/replica/devices/loss_scale.h"
#include "muster/json.h"

namespace muster {

// The report of a completed step. All numbers cover all replicas, except where a comment says
// otherwise.
struct StepReport {
  int64_t step = 0;             // Counts from 1.
  int64_t epoch = 0;            // Counts from 0.
  int64_t step_in_epoch = 0;    // Counts from 1.
  int64_t steps_per_epoch = 0;  // 0 if unknown.
  int64_t total_steps = 0;      // 0 if unknown.
  // The loss that the optimizers minimize, for the whole global batch, before the update.
  double loss = 0;
  double learning_rate = 0;                      // Rate of the first optimizer.
  std::map<std::string, double> learning_rates;  // Keyed by optimizer.
  // The L2 norm of each optimizer's gradients before clipping, keyed by optimizer. Set only at
  // steps for which summaries are written. With parameter servers, each norm covers only one
  // worker's gradients.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;  // Examples in this step.
  // Values that the program reports under a name, such as "d_loss". Like the loss, each value is a
  // mean over the global batch.
  std::map<std::string, double> values;
  // The program's metrics over the steps of this epoch up to this step.
  std::map<std::string, double> metrics;
  // Set if the job's precision is float16. With parameter servers, this is the scale of the worker
  // that computed the step.
  std::optional<LossScaleReport> loss_scale;
  // Seconds of this step. compute_seconds is the time that rank 0's first replica computed.
  // wait_seconds is the time that this replica waited for other replicas. input_seconds is the
  // longest time that a replica waited for its part of the batch. With parameter servers, all three
  // are times of the worker that computed this step.
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  // Seconds since the previous step.
  double total_seconds = 0;
  // Seconds that the step took, including input_seconds. Equal to total_seconds without parameter
  // servers. With parameter servers, the steps of workers overlap, and step_seconds is the time
  // that the worker spent on this step.
  double step_seconds = 0;
};

// The report of a validation or test pass, or of a training epoch. For a training epoch, `metrics`
// has the metrics over the steps of the epoch.
struct EpochReport {
  std::string split;  // "train", "validation" or "test".
  int64_t epoch = 0;  // Counts from 0.
  int64_t step = 0;   // Completed steps.
  int64_t examples = 0;
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...
  double seconds = 0;                     // The duration.
};

struct ParameterReport {
  std::string model, name;  // `name` is the name within the model.
  std::vector<int64_t> shape;
  bool trainable = true;
};

// The report of the state with which a generation starts. If the chief was lost, the last reports
// of the previous generation may be missing. StartReport therefore repeats some of them.
struct StartReport {
  std::string program;
  int world_size = 0, num_replicas = 0;
  // start_step is the number of completed steps. steps_per_epoch, epochs and total_steps are 0 if
  // unknown.
  int64_t global_batch_size = 0, steps_per_epoch = 0, epochs = 0, total_steps = 0, start_step = 0;
  int64_t start_examples = 0;  // Examples trained on up to start_step.
  // True if a pass was due after start_step and is not complete. The loop makes the pass next.
  bool validation_due = false, test_due = false;
  // The report of step number start_step. Absent if this process has restored start_step from a
  // checkpoint.
  std::optional<StepReport> last_step;
  // The training metrics of the epoch, as in EpochReport. Set if start_step ends an epoch or the
  // job.
  std::map<std::string, double> train_metrics;
  // The completed validation and test passes of the state after start_step. Their `examples` and
  // `seconds` are not set. Empty if start_step was restored from a checkpoint.
  std::vector<EpochReport> passes;
  // The number of epochs that had begun at start_step. If it is -1, the observer computes the
  // number from start_step and steps_per_epoch.
  int64_t epochs_begun = -1;
  bool finished = false;  // True if the program or a callback ended training at start_step.
  // The step whose weights a callback has restored. 0 if the weights are those of start_step.
  int64_t weights_of = 0;
  std::optional<LossScaleReport> loss_scale;  // Set if the job's precision is float16.
  // Pairs of a split, such as "train", and its number of examples (-1 if unknown).
  std::vector<std::pair<std::string, int64_t>> split_sizes;
  // Pairs of a model and the number of elements in its parameters.
  std::vector<std::pair<std::string, int64_t>> parameter_counts;
  std::vector<ParameterReport> parameters;  // Parameters of all models.
  // Lines of text that describe the groups of each optimizer (DescribeGroups).
  std::vector<std::string> groups;
};

// Images with one tag that the program shows on rank 0's first replica.
struct ImageReport {
  std::string tag;
  int64_t step = 0;
  // `channels` is 1 (gray), 3 (RGB) or 4 (RGBA).
  int count = 0, height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [count][height][width][channels]
};
struct HistogramReport {
  std::string tag;
  int64_t step = 0;
  summary::Distribution distribution;
};

// Scalars for TensorBoard that are not in a StepReport. Each has a tag.
struct ScalarReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

// Statistics of each embedding table after a step. Lookups, evictions and refusals are counted
// since the start of the processes that have the tables. Without parameter servers, each member has
// all tables, and the counts are those of rank 0. The number of lookups then covers only rank 0's
// replicas.
struct TablesReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, push_pull::TableStatistics>> tables;
};

// Receives the reports of the loop, for example for the progress bar, TensorBoard and result.json.
// The loop's thread makes the calls, in the order of events. Implementations must not throw.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnStart(const StartReport&) {}
  virtual void OnStep(const StepReport&) {}
  virtual void OnEpoch(const EpochReport&) {}
  // Called if the program or a callback ends training after `step`, before the end that the job
  // file sets.
  virtual void OnFinish(int64_t /*step*/) {}
  // Called right before the loop gives the state after `step` to the checkpoint sink. The observer
  // must write all earlier reports to its files, but need not call fsync. If only the process
  // crashes, a restart from this checkpoint leaves no gap in the files.
  virtual void OnSave(int64_t /*step*/) {}
  // Called for an image or a histogram that the program shows with the methods `image` and
  // `histogram` of Step and Evaluation. OnHistogram is also called for histograms of the
  // parameters. `split` is the split of the step or pass.
  virtual void OnImages(const std::string& /*split*/, const ImageReport&) {}
  virtual void OnHistogram(const std::string& /*split*/, const HistogramReport&) {}
  virtual void OnScalars(const std::string& /*split*/, const ScalarReport&) {}
  // Called right after each OnStep if the program has embedding tables.
  virtual void OnTables(const TablesReport&) {}
  // Called for reports that callbacks make. OnText gets a text for TensorBoard, as Markdown.
  // OnCallback gets the callback's entry in result.json.
  virtual void OnText(int64_t /*step*/, const std::string& /*tag*/, const std::string& /*text*/) {}
  virtual void OnCallback(const std::string& /*name*/, const Json& /*note*/) {}
  // Called after a step or pass that left out damaged examples (input/damaged_examples.h).
  // `examples` is the number of these examples over all replicas. `names` has the error texts that
  // no earlier report has. Some texts may be missing (DamagedExamples::Report).
  virtual void OnLeftOut(const std::string& /*split*/, int64_t /*examples*/,
                         const std::vector<std::string>& /*names*/) {}
  // Called after each batch of a validation or test pass. `done` and `total` count batches.
  virtual void OnEvaluateProgress(const std::string& /*split*/, int64_t /*done*/,
                                  int64_t /*total*/) {}
};

}  // namespace muster
