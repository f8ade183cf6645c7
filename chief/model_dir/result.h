// Collects the content of result.json, which tells scripts the outcome of a run. docs/model_dir.md
// lists the fields.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/input_wait.h"
#include "common/train/membership.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::chief {

// Returns {"host", "cpu", "cores", "memory_bytes"} of this host. "cores" counts the cores that this
// process may use.
Json HardwareOfThisHost();
// Returns {"muster": ...}. Callers that link LibTorch add its version.
Json OwnVersions();

// Computes the median of a value over the steps of a run. Leaves out the first steps, which warm up
// caches and allocators. Memory is bounded: a long run keeps every second step, then every fourth,
// and so on.
class SteadySeries {
 public:
  void Add(double value);
  double Median() const;  // 0 without steps.

 private:
  static constexpr size_t kMax = 1 << 16;
  static constexpr int64_t kWarmUpSteps = 10;
  std::vector<double> values_;
  int64_t seen_ = 0, stride_ = 1;
};

// Computes the share of the steps' time that was spent waiting for input. It is a share of the
// total time, not the median over steps, because waits may come in bursts. The first
// `warm_up_steps` steps fill the pipeline and warm up caches. Once twice as many steps were added,
// these first steps no longer count.
class InputWait {
 public:
  static constexpr int64_t kWarmUpSteps = 10;
  explicit InputWait(int64_t warm_up_steps = kWarmUpSteps) : warm_up_steps_(warm_up_steps) {}
  void Add(const StepReport& report);
  bool any() const { return steps_ > 0; }
  double Share() const;    // 0 without steps.
  double Seconds() const;  // Total time waited.

 private:
  bool all() const { return steps_ < 2 * warm_up_steps_; }

  int64_t warm_up_steps_, steps_ = 0;
  double input_ = 0, seconds_ = 0, warm_up_input_ = 0, warm_up_seconds_ = 0;
};

// Returns advice on which settings of a job to raise. `data` is the job's "data" section. REQUIRES:
// share >= kMuchInputWait.
std::string InputWaitHint(double share, const Json& data);

// Returns the counts with their names in result.json and TensorBoard.
std::vector<std::pair<std::string, int64_t>> CountsOf(const push_pull::TableStatistics& statistics);

// The outcome of a run's checkpoints. Checkpoints fills it in.
struct CheckpointRecord {
  // The newest published checkpoint and the best one, relative to model_dir
  // ("checkpoints/step-00000500"); empty if none.
  std::string newest, best;
  // The metric that selected `best`, and its value. "" if unknown.
  std::string best_metric;
  double best_value = 0;
  // All metrics of the best checkpoint; empty if an earlier process measured them.
  std::map<std::string, double> best_metrics;
  // Counts of this process's saves. `written` counts the published ones. `dropped` counts those
  // that were skipped because the previous save was still being written. `failed` counts those that
  // were not published because of an error. `last_error` is the last such error.
  int64_t written = 0, dropped = 0, failed = 0;
  std::string last_error;
};

// Collects the content of result.json. Totals cover the whole run with its restarts. Speeds cover
// only this process. Used by one thread.
class RunRecord {
 public:
  // If the run continues, this is called first. `earlier` is the run's existing result.json.
  // Invalid content is ignored.
  void Continue(const Json& earlier);
  void OnStart(const StartReport& report);
  void OnStep(const StepReport& report);
  void OnEpoch(const EpochReport& report);
  // Called if the program ended training before the job's last step.
  void OnFinish() { finished_ = true; }
  // Counts damaged examples that were omitted, and keeps their descriptions. An example counts each
  // time that it is omitted.
  void OnLeftOut(const std::string& split, int64_t examples, const std::vector<std::string>& names);
  // Sets the note of a callback.
  void OnCallback(const std::string& name, const Json& note) { callbacks_[name] = note; }
  void OnTables(const TablesReport& report) { tables_ = report.tables; }
  // Reports the evaluator's metrics of the checkpoint of `step`.
  void OnEvaluation(int64_t step, const std::map<std::string, double>& metrics);

  struct Ending {
    absl::Status verdict;
    int64_t generations = 0;         // Number of generations in the whole run.
    Json recovery = Json::object();  // The result of RunHistory::ToJson.
    double wall_seconds = 0;
    CheckpointRecord checkpoints;
    Json parameter_server;  // Null without parameter servers.
    Json hardware = Json::object(), versions = Json::object();
  };
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
  Json speed_;  // Speed of an earlier process. The first step of this process clears it.
  Json earlier_best_;
  SteadySeries rate_, compute_, wait_, input_;
  InputWait input_wait_;
  std::map<std::string, int64_t> left_out_;  // Indexed by split.
  std::vector<std::string> damaged_;         // Descriptions, at most kMaxDamaged.
  std::map<std::string, Json> callbacks_;
  std::map<std::string, Pass> passes_;  // The last pass over each split.
  std::vector<std::pair<std::string, push_pull::TableStatistics>> tables_;
};

}  // namespace muster::chief
