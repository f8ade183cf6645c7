// result.json: how a run ended, for scripts (docs/model_dir.md lists its fields).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/input_wait.h"
#include "common/train/membership.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// {"host", "cpu", "cores", "memory_bytes"} of this host. Cores are those that this process may use.
Json HardwareOfThisHost();
// {"muster": ...}; whoever links LibTorch adds its own.
Json OwnVersions();

// One number of each step, of which the median over the steady ones is wanted: the first steps,
// which warm caches and allocators up, are left out. Memory is bounded: of a long run every second,
// then every fourth, ... step is kept.
class SteadySeries {
 public:
  void Add(double value);
  double Median() const;  // 0 where there are no steps

 private:
  static constexpr size_t kMost = 1 << 16;
  static constexpr int64_t kWarmUpSteps = 10;
  std::vector<double> values_;
  int64_t seen_ = 0, stride_ = 1;
};

// How much of the steps' time goes to waiting for input: of all steps together, not of the typical
// one, for waits may come in bursts. The first steps of a process, which fill the pipeline and warm
// caches up, do not count where there are as many others.
class InputWait {
 public:
  static constexpr int64_t kWarmUpSteps = 10;
  explicit InputWait(int64_t warm_up_steps = kWarmUpSteps) : warm_up_steps_(warm_up_steps) {}
  void Add(const StepReport& report);
  bool any() const { return steps_ > 0; }
  double Share() const;    // 0 where there are no steps
  double Seconds() const;  // that were waited

 private:
  bool all() const { return steps_ < 2 * warm_up_steps_; }

  int64_t warm_up_steps_, steps_ = 0;
  double input_ = 0, seconds_ = 0, warm_up_input_ = 0, warm_up_seconds_ = 0;
};

// What a job can raise, by what its "data" (as the job has it) says so far. REQUIRES: share >=
// kMuchInputWait.
std::string InputWaitHint(double share, const Json& data);

// By the names that they have in result.json and TensorBoard.
std::vector<std::pair<std::string, int64_t>> CountsOf(const TableStatistics& statistics);

// What became of a run's checkpoints. The chief fills it in.
struct CheckpointRecord {
  // Of the newest one that was published and of the best, relative to model_dir
  // ("checkpoints/step-00000500"); empty: none.
  std::string newest, best;
  std::string best_metric;  // by which it is the best, and what it has there; "": not known
  double best_value = 0;
  // All that was measured with it; empty: by an earlier process.
  std::map<std::string, double> best_metrics;
  // Saves of this process: published, left out because the one before was still being written, and
  // not published because of an error, of which the last one is kept.
  int64_t written = 0, dropped = 0, failed = 0;
  std::string last_error;
};

// Gathers what result.json tells of a run: its totals, also where it was stopped and went on, but
// speeds are of this process. For one thread.
class RunRecord {
 public:
  // Before all else: `earlier` is the result.json that this run left when it was stopped. What is
  // no such thing is ignored.
  void Continue(const Json& earlier);
  void OnStart(const StartReport& report);
  void OnStep(const StepReport& report);
  void OnEpoch(const EpochReport& report);
  // The program ended its training before the job's own end.
  void OnFinish() { finished_ = true; }
  // Damaged examples that were left out, each time they were, and what is wrong with them.
  void OnLeftOut(const std::string& split, int64_t examples, const std::vector<std::string>& names);
  // What a callback has to say.
  void OnCallback(const std::string& name, const Json& note) { callbacks_[name] = note; }
  void OnTables(const TablesReport& report) { tables_ = report.tables; }
  // By the evaluator, of the checkpoint of that step.
  void OnEvaluation(int64_t step, const std::map<std::string, double>& metrics);

  struct Ending {
    absl::Status verdict;
    int64_t generations = 0;         // in the whole run
    Json recovery = Json::object();  // RunHistory's
    double wall_seconds = 0;
    CheckpointRecord checkpoints;
    Json parameter_server;  // null: there is none
    Json hardware = Json::object(), versions = Json::object();
  };
  Json Result(const Ending& ending) const;

 private:
  static constexpr size_t kMostDamaged = 20;
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
  Json speed_;  // the earlier one; gone with the first step of this process
  Json earlier_best_;
  SteadySeries rate_, compute_, wait_, input_;
  InputWait input_wait_;
  std::map<std::string, int64_t> left_out_;  // by split
  std::vector<std::string> damaged_;         // the first ones
  std::map<std::string, Json> callbacks_;
  std::map<std::string, Pass> passes_;  // the last one over each split
  std::vector<std::pair<std::string, TableStatistics>> tables_;
};

}  // namespace muster
