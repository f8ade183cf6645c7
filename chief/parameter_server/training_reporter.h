// TrainingReporter reports the progress of a parameter-server job to the Observers
// (common/train/observer.h): the start, steps, epochs, embedding tables, and the images,
// histograms and scalars of programs. It reports steps in the order of completion. Used by one
// thread at a time.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/work_table.h"
#include "chief/parameter_server/shard_state.h"

namespace muster::chief {

// Indexed by muster::Split.
inline constexpr const char* kSplitNames[] = {"train", "validation", "test"};

class TrainingReporter {
 public:
  // All arguments must outlive this object.
  TrainingReporter(const Job& job, const ShardState& state, const DirectorStart& start)
      : job_(job), state_(state), start_(start) {}

  // Reports the start of training at the state `at`. The caller sets the fields of `report` that
  // depend on the run. Start sets the fields that follow from the job, the program and the data.
  // The duration of the current epoch counts from the time passed to ContinueEpoch. If
  // ContinueEpoch was not called, the duration counts from the call of Start. `at_end_of_epoch` is
  // true if the newest step ended an epoch or the training. Start then also reports the training
  // metrics of the last epoch.
  void Start(StartReport report, const checkpoint::TrainingState& at, bool at_end_of_epoch);
  void ContinueEpoch(MonotonicTime began) { epoch_start_ = began; }
  MonotonicTime epoch_start() const { return epoch_start_; }

  // Called before `count` calls of Step. The time since the previous BeginSteps is divided equally
  // among these steps.
  void BeginSteps(size_t count);
  void Step(const CompletedStep& step, int64_t batches_per_epoch,
            const std::map<int, push_pull::TableStatistics>& tables);
  void EndEpoch(const CompletedStep& step);
  // Called after a validation or test pass. Restarts the timers of the epoch and of the step, so
  // the time of the pass does not count.
  void ResumeAfterPass() { epoch_start_ = step_time_ = Clock::now(); }

  void BeginPass() {
    pass_start_ = Clock::now();
    parts_ = -1;
  }
  void PassProgress(int split, int64_t done, int64_t total);
  void EndPass(int split, int64_t epoch, int64_t step, const WorkTable::PassResult& pass,
               const proto::Shown& shown, const std::map<std::string, double>& metrics);

  // Reports the statistics of embedding tables, keyed by variable.
  void Tables(int64_t step, const std::map<int, push_pull::TableStatistics>& tables);
  // Reports histograms of the parameters in the chief's replica of the model. The chief has read
  // these parameters from the servers after `step`.
  void Parameters(int64_t step);
  // Computes the training metrics from the sums of an epoch.
  std::map<std::string, double> TrainMetrics(
      const std::vector<double>& sums, double loss_sum, int64_t examples,
      const std::map<std::string, checkpoint::ReportedSum>& values) const;
  // Calls `call` with each observer.
  template <typename Call>
  void Notify(const Call& call) {
    for (Observer* observer : start_.observers) call(observer);
  }

 private:
  void Epoch(int split, int64_t epoch, int64_t step, int64_t examples, double seconds,
             std::map<std::string, double> metrics);
  void LeftOut(int split, const proto::LeftOut& left_out);
  void Shown(int split, int64_t step, const proto::Shown& shown);
  void MetricImages(int split, int64_t step, const std::vector<double>& sums);
  void Staleness(const CompletedStep& step);

  const Job& job_;
  const ShardState& state_;
  const DirectorStart& start_;
  MonotonicTime epoch_start_, step_time_, pass_start_;
  double step_seconds_ = 0;
  int64_t parts_ = -1;  // The last reported number of completed parts of the pass, -1 if none.
  // Maps a worker to its pushes since the last report: for each push, the mean staleness of its
  // chunks (pieces of the variables), and for all these pushes, the largest staleness of a chunk. A
  // chunk's staleness is the number of updates by other workers between its pull and its push.
  std::map<int, std::pair<std::vector<double>, int64_t>> staleness_;
};

}  // namespace muster::chief
