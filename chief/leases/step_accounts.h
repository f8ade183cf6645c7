// StepAccounts turns completed leases of a parameter-server job into steps. It has the sums over
// the completed steps of an epoch, and what the whole run counts: refused pushes, skipped steps,
// and the staleness of each worker. WorkTable owns it. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chief/leases/lease_table.h"
#include "common/checkpoint/checkpoint.h"
#include "common/train/replica/loss_scale.h"
#include "muster/json.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

struct StalenessRecord {
  int64_t max = 0, pushes = 0;
  double sum = 0;
  void Add(int64_t highest, double mean) {
    max = std::max(max, highest);
    sum += mean;
    ++pushes;
  }
  double mean() const { return pushes == 0 ? 0 : sum / static_cast<double>(pushes); }
};

// A completed lease.
struct CompletedStep {
  int64_t step = 0;  // Counts from 1.
  int64_t epoch = 0, step_in_epoch = 0;
  bool epoch_end = false, all_done = false;
  double loss = 0, learning_rate = 0;
  int64_t examples = 0;
  std::map<std::string, double> learning_rates, gradient_norms;  // Indexed by optimizer.
  std::map<std::string, double> values;
  std::optional<LossScaleReport> loss_scale;  // Only with float16.
  proto::Shown shown;
  proto::LeftOut left_out;
  // The variables for which this push had gradients that were not finite. refused_pushes counts
  // such pushes of the run so far.
  std::vector<std::string> not_finite;
  int64_t refused_pushes = 0;
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  int worker = 0;  // The worker that computed the batch.
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  // Sums of the epoch so far, including this step.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::map<std::string, checkpoint::ReportedSum> epoch_values;
};

class StepAccounts {
 public:
  // Training begins or resumes from `state`. `batch` is the batch size of one worker. `leases` has
  // the position in the epoch.
  StepAccounts(size_t metric_sums, int64_t batch, const LeaseTable& leases,
               const checkpoint::TrainingState& state);

  // Returns the step that is complete with `lease`. REQUIRES: `leases` counts the lease as
  // completed.
  CompletedStep Add(const Lease& lease, int worker, const proto::BatchDone& done,
                    const LeaseTable& leases);
  // Sets the sums and the number of skipped steps in `state`.
  void CopyTo(checkpoint::TrainingState* state) const;

  // AddTo adds everything to the chief's record of leases. Read takes it from there. Read returns
  // DataError if the record is of another job, and throws a std::exception if it is malformed.
  void AddTo(Json* record) const;
  absl::Status Read(const Json& record);

  // Returns the number of pushes that were refused in part, because values were not finite.
  int64_t refused_pushes() const { return refused_pushes_; }
  // Indexed by worker.
  const std::map<int, StalenessRecord>& staleness() const { return staleness_; }

 private:
  void BeginEpoch();

  // Sums over the completed steps of the epoch that the last step belongs to.
  double epoch_loss_sum_ = 0;
  int64_t epoch_examples_ = 0, epoch_steps_ = 0;
  std::vector<double> epoch_metric_sums_;
  std::map<std::string, checkpoint::ReportedSum> epoch_values_;
  bool epoch_over_ = true;     // The next step is the first of another epoch.
  int64_t skipped_steps_ = 0;  // Only with float16.
  int64_t refused_pushes_ = 0;
  std::map<int, StalenessRecord> staleness_;
};

}  // namespace muster::chief
