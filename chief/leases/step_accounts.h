// StepAccounts turns the completed leases of a parameter-server job into steps. A lease is a batch
// that the chief assigned to a worker (lease_table.h). StepAccounts has the sums over the steps of
// an epoch. For the whole run, it has the number of refused pushes, the number of skipped steps,
// and the staleness of each worker. TrainingLeases (training_leases.h) owns it. Used by one thread
// at a time.
//
// The staleness of a push is the number of updates by other workers between the pull of the
// parameters and the push of their gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chief/leases/lease_table.h"
#include "common/checkpoint/checkpoint.h"
#include "common/train/replica/devices/loss_scale.h"
#include "muster/json.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

// The staleness of a worker's pushes.
struct StalenessRecord {
  int64_t max = 0, pushes = 0;
  double sum = 0;  // The sum of the argument `mean` of Add over all pushes.
  // Adds a push. `highest` and `mean` are the highest and the mean staleness of the chunks (pieces
  // of the variables) that the push updated.
  void Add(int64_t highest, double mean) {
    max = std::max(max, highest);
    sum += mean;
    ++pushes;
  }
  double mean() const { return pushes == 0 ? 0 : sum / static_cast<double>(pushes); }
};

// A completed lease. Steps are numbered in the order of completion.
struct CompletedStep {
  int64_t step = 0;                      // Counts from 1.
  int64_t epoch = 0, step_in_epoch = 0;  // `epoch` counts from 0, `step_in_epoch` from 1.
  // True if this step is the last one of its epoch, or of the run.
  bool epoch_end = false, all_done = false;
  double loss = 0, learning_rate = 0;
  int64_t examples = 0;
  std::map<std::string, double> learning_rates, gradient_norms;  // Keyed by optimizer.
  std::map<std::string, double> values;                          // Reported by the program.
  std::optional<LossScaleReport> loss_scale;                     // Only with float16.
  proto::Shown shown;       // Images and histograms for TensorBoard.
  proto::LeftOut left_out;  // Damaged examples that the worker has left out.
  // The variables whose gradients in this push had an infinity or a NaN. The servers refused the
  // chunks of the push that contain such a value, and applied the other chunks. If `not_finite` is
  // not empty, refused_pushes is the number of pushes with refused chunks so far in the run,
  // including this push. Otherwise refused_pushes is 0.
  std::vector<std::string> not_finite;
  int64_t refused_pushes = 0;
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  int worker = 0;  // The worker that computed the batch.
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  // Sums over the completed steps of the current epoch, including this step.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::map<std::string, checkpoint::ReportedSum> epoch_values;
};

class StepAccounts {
 public:
  // Training begins or resumes from `state`. `metric_sums` is the number of sums from which all
  // metrics are computed: the total of Metric::width. `batch` is the batch size of one worker.
  // `leases` gives the position in the epoch.
  StepAccounts(size_t metric_sums, int64_t batch, const LeaseTable& leases,
               const checkpoint::TrainingState& state);

  // Adds a completed lease with its result `done`. Returns the step that the lease becomes.
  // REQUIRES: `leases` counts `lease` as completed.
  CompletedStep Add(const Lease& lease, int worker, const proto::BatchDone& done,
                    const LeaseTable& leases);
  // Sets the sums of the epoch and the number of skipped steps in `state`.
  void CopyTo(checkpoint::TrainingState* state) const;

  // AddTo stores this object in the chief's record (chief_record.h), and Read restores it from the
  // record. Read returns DataError if the record has another number of metric sums. It throws a
  // std::exception if the record is malformed.
  void AddTo(Json* record) const;
  absl::Status Read(const Json& record);

  // Returns the number of pushes that had an infinity or a NaN. Servers refused the chunks of these
  // pushes that contain such a value, and applied the other chunks.
  int64_t refused_pushes() const { return refused_pushes_; }
  // Returns the staleness, keyed by worker.
  const std::map<int, StalenessRecord>& staleness() const { return staleness_; }

 private:
  void BeginEpoch();

  // Sums over the completed steps of one epoch: the epoch of the newest completed step.
  double epoch_loss_sum_ = 0;
  int64_t epoch_examples_ = 0, epoch_steps_ = 0;
  std::vector<double> epoch_metric_sums_;
  std::map<std::string, checkpoint::ReportedSum> epoch_values_;
  bool epoch_over_ = true;     // True if the next step is the first one of an epoch.
  int64_t skipped_steps_ = 0;  // Steps that the loss scale skipped. Only with float16.
  int64_t refused_pushes_ = 0;
  std::map<int, StalenessRecord> staleness_;
};

}  // namespace muster::chief
