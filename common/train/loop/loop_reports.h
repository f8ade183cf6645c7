// The reports of a replica's loop about its steps, epochs and passes, and the times of these. Only
// the reporter (LoopReplica) reports to observers. In all other replicas, the methods that report
// do nothing. The meter of the process receives the steps of all replicas.
//
// Reads the state of the loop, and communicates with no other replica. Used by the replica's
// thread.
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

// Returns the training metrics of the epoch of the last step: "loss", the program's metrics, and
// the values that its steps reported. All are means over the epoch's examples so far.
std::map<std::string, double> TrainMetrics(const Replica& replica, const LoopState& state);

class LoopReports {
 public:
  // `loop` must outlive this object.
  explicit LoopReports(const LoopReplica& loop) : loop_(loop), state_(loop.state) {}

  // Returns true if an observer receives this replica's reports.
  bool observed() const { return loop_.reporter() && !observers().empty(); }

  // The time in the next report of a step counts from the last call of RestartStepClock or
  // RestartClocks. The time of the next epoch counts from the last call of RestartClocks or Epoch.
  void RestartStepClock() { step_start_ = Clock::now(); }
  void RestartClocks() { epoch_start_ = step_start_ = Clock::now(); }

  // Reports the state at the start of the generation.
  void Start() const;
  // Reports the last step, which was made over `batch`.
  void Step(const StepResult& result, const FedBatch& batch) const;
  // Feeds the meter with the last step, in which this replica computed `local_examples`.
  void Measure(const StepResult& result, int64_t local_examples) const;
  // Reports the graph of the first step. `of_losses` is the one that autograd recorded.
  void Graph(std::vector<summary::GraphNode> of_losses) const;
  // Reports the damaged examples that a step or a pass has left out, if there are any.
  void LeftOut(Split split, const DamagedExamples::Report& left_out) const;
  // Reports the end of the epoch of the last step, and restarts the clock of epochs.
  void Epoch();
  // Returns the function for PassOptions::progress.
  std::function<void(int64_t done, int64_t total)> PassProgress(Split split) const;
  // Reports a complete pass, which began at `start`.
  void Pass(Split split, const PassResult& pass, MonotonicTime start) const;
  // Reports that the program or a callback ends training after the last step.
  void Finish() const;
  // Reports that a checkpoint of the state follows.
  void SaveBegins() const;

 private:
  const std::vector<Observer*>& observers() const { return loop_.context.observers; }
  // Returns the report on the loss scale, or nullopt without float16. `skipped` is true if the last
  // step was skipped.
  std::optional<LossScaleReport> LossScale(bool skipped) const;
  // These return the parts of a StartReport: the last step, and the passes after it.
  std::optional<StepReport> LastStep() const;
  std::vector<EpochReport> LastPasses() const;
  void AddModels(StartReport* report) const;
  void Metrics(Split split, int64_t examples, double seconds,
               const std::map<std::string, double>& metrics) const;
  void Summary(Split split, const SummaryData& summary) const;
  void Parameters() const;  // Histograms of the parameters, if they are due.
  void Tables() const;

  const LoopReplica& loop_;
  const LoopState& state_;
  MonotonicTime epoch_start_, step_start_;
};

}  // namespace muster
