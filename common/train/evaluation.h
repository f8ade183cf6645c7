// A pass over the validation or test split with a program's eval_step, made jointly by all replicas
// of a communicator. Each example counts once. Used by the training loop and the evaluator.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/extras.h"
#include "common/collective/communicator.h"
#include "common/train/damaged_examples.h"
#include "common/train/replica/replica.h"
#include "common/train/summary_data.h"

namespace muster {

struct PassOptions {
  Split split = Split::kValidation;
  data::DatasetPtr dataset;
  int64_t batch_size = 1;           // For all replicas together.
  int replicas_on_host = 1;         // Replicas that share the host's cores.
  DamageLog* damage_log = nullptr;  // Null: the pass uses its own.
  // Keep the images and histograms that the program shows in the first batch.
  bool summary = false;
  // Returns whether this replica wants to stop the pass. Every replica polls it from time to time.
  // If one wants to stop, all stop.
  std::function<bool()> stop;
  // Called after each batch. May be null.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct PassResult {
  bool stopped = false;  // The pass was stopped: all other fields are empty.
  // Over all replicas: the program's metrics, the means of its reported values, and "loss" if it
  // gave one.
  std::map<std::string, double> metrics;
  int64_t examples = 0;
  DamagedExamples::Report left_out;
  SummaryData summary;
};

// Returns how many examples the replicas of a pass take at once, in total. Each replica takes
// evaluate.batch_size examples if the job sets it, otherwise its part of `global_batch_size` in a
// training micro-batch. With fewer than `declared_replicas` replicas, each replica takes only its
// part among that declared number, because more may not fit in memory. Does not affect the result
// of a pass.
int64_t PassBatchSize(const Job& job, int64_t global_batch_size, int num_replicas,
                      int declared_replicas = 0);

// Called by every replica, each in its own thread. All modules are in evaluation mode during the
// pass, and in their previous modes when it returns.
absl::StatusOr<PassResult> RunPass(const Job& job, Replica* replica, Communicator* communicator,
                                   const PassOptions& options);

// The sums of a pass.
struct PartSums {
  std::vector<double> sums;  // loss, examples, then all metrics' sums.
  double loss_divisor = 0;   // Divisor of the loss sum. 0: there was no loss.
  std::map<std::string, checkpoint::ReportedSum> values;  // Values that the program reported.
};

// Runs eval_step over `batch`, one part of a pass, on one replica alone. Sets `shown` to the
// images and histograms that the program shows. `shown` may be null. Module modes are as in
// RunPass.
absl::StatusOr<PartSums> EvaluatePart(const Job& job, Replica* replica, Split split,
                                      data::Batch batch, int64_t examples, SummaryData* shown);

// Returns the values of the program's metrics. `sums` has all their sums, in order of declaration.
std::map<std::string, double> MetricResults(const Replica& replica, const double* sums);

// Returns the images that the metrics draw from these sums, tagged with the metrics' names.
std::vector<ImageReport> MetricImages(const Replica& replica, const double* sums);

// Makes the dataset that the program declared for `split`. Returns an error for a null or failing
// dataset. A dataset of unknown size is an error unless `may_be_unsized`, and always if the job
// skips damaged examples.
absl::StatusOr<data::DatasetPtr> MakeDataset(const Replica& replica, Split split,
                                             bool may_be_unsized = false);
// Makes the program's named datasets, indexed by handle. Returns an error for a null, failing or
// empty dataset, and for one of unknown size if the job skips damaged examples.
absl::StatusOr<std::vector<data::DatasetPtr>> MakeNamedDatasets(const Replica& replica);
// Returns OK unless the program declares a feature that parameter servers do not support.
absl::Status CheckForServers(const Replica& replica);

}  // namespace muster
