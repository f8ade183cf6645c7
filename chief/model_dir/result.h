// The classes in this header collect the content of result.json, which tells scripts the outcome of
// a run. docs/model_dir.md lists the fields.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/input_wait.h"
#include "common/train/observer.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::chief {

// Returns {"host", "cpu", "cores", "memory_bytes"} of this host. "cores" counts the cores that this
// process may use.
Json HardwareOfThisHost();
// Returns {"muster": the version}. Callers that link LibTorch add the version of LibTorch.
Json OwnVersions();

// Computes the median of a value over the steps of a run. Omits the first steps, which warm up
// caches and allocators. Keeps a bounded number of values: in a long run it keeps every second
// value, in a longer run every fourth value, and so on.
class SteadySeries {
 public:
  void Add(double value);
  double Median() const;  // Returns 0 if there are no values.

 private:
  static constexpr size_t kMax = 1 << 16;
  static constexpr int64_t kWarmUpSteps = 10;
  std::vector<double> values_;
  int64_t seen_ = 0, stride_ = 1;
};

// Computes the fraction of the total time of all steps that was spent waiting for input. (A median
// over steps would hide waits that come in bursts.) The first `warm_up_steps` steps fill the
// pipeline and warm up caches. InputWait ignores them once at least 2 * `warm_up_steps` steps were
// added.
class InputWait {
 public:
  static constexpr int64_t kWarmUpSteps = 10;
  explicit InputWait(int64_t warm_up_steps = kWarmUpSteps) : warm_up_steps_(warm_up_steps) {}
  void Add(const StepReport& report);
  bool any() const { return steps_ > 0; }
  double Share() const;    // The fraction, from 0 to 1. 0 if there are no steps.
  double Seconds() const;  // The total time spent waiting, in seconds.

 private:
  // Returns whether the warm-up steps are included in the results.
  bool all() const { return steps_ < 2 * warm_up_steps_; }

  int64_t warm_up_steps_, steps_ = 0;
  double input_ = 0, seconds_ = 0, warm_up_input_ = 0, warm_up_seconds_ = 0;
};

// Returns a sentence that names the settings with which the user can reduce the waits for input.
// `share` is InputWait::Share(). `data` is the job's "data" section. REQUIRES: `share` is at least
// kMuchInputWait (common/telemetry/input_wait.h).
std::string InputWaitHint(double share, const Json& data);

// Returns the counts of an embedding table, with their names in result.json and TensorBoard.
std::vector<std::pair<std::string, int64_t>> CountsOf(const push_pull::TableStatistics& statistics);

// The outcome of a run's checkpoints. The class Checkpoints (checkpoints.h) sets the fields.
struct CheckpointRecord {
  // The paths of the newest published checkpoint and of the best one, relative to model_dir, such
  // as "checkpoints/step-00000500". "" if there is none.
  std::string newest, best;
  // The metric that selected `best`, and its value. The metric is "" if unknown.
  std::string best_metric;
  double best_value = 0;
  // All metrics of the best checkpoint. Empty if an earlier process measured them.
  std::map<std::string, double> best_metrics;
  // Numbers of saves of this process. `written`: published checkpoints. `dropped`: saves that were
  // skipped because an earlier checkpoint was still being written or read. `failed`: saves that
  // failed with an error. `last_error` is the last of these errors.
  int64_t written = 0, dropped = 0, failed = 0;
  std::string last_error;
};

// RunRecord collects the content of result.json. Its totals include earlier processes of the run.
// Its speeds include only this process. Before the first step of this process, RunRecord has the
// speeds of an earlier process. Used by one thread at a time.
class RunRecord {
 public:
  // Continues the totals of `earlier`, the result.json of an earlier process of this run. Ignores
  // invalid content. Called before the other methods.
  void Continue(const Json& earlier);
  void OnStart(const StartReport& report);
  void OnStep(const StepReport& report);
  void OnEpoch(const EpochReport& report);
  // Called if the program ended training before the job's last step.
  void OnFinish() { finished_ = true; }
  // Counts damaged examples that were omitted, and keeps their descriptions `names`. An example
  // counts each time it is omitted.
  void OnLeftOut(const std::string& split, int64_t examples, const std::vector<std::string>& names);
  // Sets the note of the callback `name` for result.json.
  void OnCallback(const std::string& name, const Json& note) { callbacks_[name] = note; }
  void OnTables(const TablesReport& report) { tables_ = report.tables; }
  // Reports metrics that the evaluator task has measured on the checkpoint of `step`.
  void OnEvaluation(int64_t step, const std::map<std::string, double>& metrics);

  // The input of Result that is known only at the end of the job.
  struct Ending {
    absl::Status verdict;  // The outcome of the job.
    // The number of generations of the run. A generation is a period in which a fixed set of tasks
    // trains together.
    int64_t generations = 0;
    Json recovery = Json::object();  // The result of RunHistory::ToJson.
    double wall_seconds = 0;
    CheckpointRecord checkpoints;
    Json parameter_server;  // Null for a job without parameter servers.
    Json hardware = Json::object(), versions = Json::object();
  };
  // Returns the content of result.json.
  Json Result(const Ending& ending) const;

 private:
  static constexpr size_t kMaxDamaged = 20;
  struct Pass {
    int64_t step = 0;
    Json metrics;
  };
  Json Speed() const;
  Json Best(const CheckpointRecord& checkpoints) const;

  int world_size_ = 0, num_replicas_ = 0;
  int64_t steps_ = 0, epochs_ = 0, examples_ = 0;
  bool finished_ = false;
  std::optional<LossScaleReport> loss_scale_;
  Json speed_;  // The speed of an earlier process. Null after the first step of this process.
  Json earlier_best_;  // The best checkpoint according to an earlier process.
  SteadySeries rate_, compute_, wait_, input_;
  InputWait input_wait_;
  std::map<std::string, int64_t> left_out_;  // Numbers of omitted examples, keyed by split.
  std::vector<std::string> damaged_;         // Descriptions of up to kMaxDamaged omitted examples.
  std::map<std::string, Json> callbacks_;
  std::map<std::string, Pass> passes_;  // The last pass over each split, keyed by split.
  std::vector<std::pair<std::string, push_pull::TableStatistics>> tables_;
};

}  // namespace muster::chief
