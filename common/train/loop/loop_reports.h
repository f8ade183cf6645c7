// The reports of a training loop about its start, steps, epochs and passes, and their durations. A
// replica is one device's copy of the model, with its own thread and loop. In this header, "the
// last step" is the newest completed step.
//
// Only the reporter, the first replica of rank 0, calls the observers (common/train/observer.h).
// In all other replicas, the methods that report do nothing. Every replica also adds numbers to the
// meter of its process. The meter serves the process's /metrics. This class reads the LoopState and
// does not communicate with other replicas. Used by the replica's thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/summary/graph_def.h"
#include "common/train/evaluation.h"
#include "common/train/loop/loop_context.h"
#include "common/train/step/step.h"

namespace muster {

// Returns training metrics: "loss", the program's metrics, and the values that the program reports
// in its steps. Each covers the completed steps of the epoch to which the last step belongs. The
// loss is weighted by examples. A reported value is weighted by examples, or by
// StepResult::value_weights if it was reported with weights.
std::map<std::string, double> TrainMetrics(const Replica& replica, const LoopState& state);

class LoopReports {
 public:
  // `loop` must outlive this object.
  explicit LoopReports(const LoopReplica& loop) : loop_(loop), state_(loop.state) {}

  // Returns true if an observer receives this replica's reports.
  bool observed() const { return loop_.reporter() && !observers().empty(); }

  // Restart the clocks. The duration in the next report of a step counts from the last call of
  // either function. The duration in the next report of an epoch counts from the last call of
  // RestartClocks or Epoch.
  void RestartStepClock() { step_start_ = Clock::now(); }
  void RestartClocks() { epoch_start_ = step_start_ = Clock::now(); }

  // Reports the state at the start of the generation.
  void Start() const;
  // Reports the last step, which was over `batch`.
  void Step(const StepResult& result, const FedBatch& batch) const;
  // Adds the numbers of the last step to the meter. `local_examples` is this replica's number of
  // examples in the step.
  void Measure(const StepResult& result, int64_t local_examples) const;
  // Reports the graph of operations, after the first step of the run. Reports the program's own
  // graph if the program is a GraphSource (graph_observer.h). Otherwise reports `of_losses`, the
  // graph that autograd recorded.
  void Graph(std::vector<summary::GraphNode> of_losses) const;
  // Reports the damaged examples that a step or a pass left out. Reports nothing if there are none.
  void LeftOut(Split split, const DamagedExamples::Report& left_out) const;
  // Reports the end of the epoch to which the last step belongs. Restarts the clock of epochs.
  void Epoch();
  // Returns a function for PassOptions::progress. The function calls Observer::OnEvaluateProgress.
  // Returns null in all replicas except the reporter.
  std::function<void(int64_t done, int64_t total)> PassProgress(Split split) const;
  // Reports a completed pass, which began at time `start`.
  void Pass(Split split, const PassResult& pass, MonotonicTime start) const;
  // Reports that the program or a callback has ended training after the last step.
  void Finish() const;
  // Calls Observer::OnSave, right before the state is saved.
  void SaveBegins() const;

 private:
  const std::vector<Observer*>& observers() const { return loop_.context.observers; }
  // Returns the report on the loss scale. Returns nullopt if the precision is not float16.
  // `skipped` is true if the last step changed nothing, because its gradients had overflowed.
  std::optional<LossScaleReport> LossScale(bool skipped) const;
  // Return parts of a StartReport: the last step, and the passes after it.
  std::optional<StepReport> LastStep() const;
  std::vector<EpochReport> LastPasses() const;
  // Reports an epoch or a pass.
  void Metrics(Split split, int64_t examples, double seconds,
               const std::map<std::string, double>& metrics) const;
  // Reports images and histograms.
  void Summary(Split split, const SummaryData& summary) const;
  // Reports histograms of the parameters, in the epochs for which the job requests them.
  void Parameters() const;
  // Reports the statistics of the embedding tables.
  void Tables() const;

  const LoopReplica& loop_;
  const LoopState& state_;
  MonotonicTime epoch_start_, step_start_;
};

}  // namespace muster
