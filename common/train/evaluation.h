// Evaluation passes. In a pass, the replicas of a communicator together run a program's eval_step
// once on every example of a split. Used by the training loop and the evaluator.
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
  int64_t batch_size = 1;           // Examples of all replicas together.
  int replicas_on_host = 1;         // Replicas that share the host's cores.
  DamageLog* damage_log = nullptr;  // If null, the pass uses a log of its own.
  // True if PassResult must include the images and histograms that the program shows in the first
  // batch.
  bool summary = false;
  // Returns true if this replica wants to stop the pass. Every replica polls its function from time
  // to time. If one replica wants to stop, all replicas stop.
  std::function<bool()> stop;
  // Called after each batch. May be null.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct PassResult {
  bool stopped = false;  // True if the pass was stopped. All other fields are then empty.
  // The metrics over all replicas: those of the program, the means of its reported values, and
  // "loss" if the program computes one.
  std::map<std::string, double> metrics;
  int64_t examples = 0;
  DamagedExamples::Report left_out;
  SummaryData summary;
};

// Returns the global batch size of a pass. If the job sets evaluate.batch_size, each replica takes
// that many examples. Otherwise each takes as many as in a micro-batch of training.
// `declared_replicas` is the number of replicas of the whole cluster. If fewer replicas remain,
// each still takes no more than with all of them, because more may not fit in memory. The batch
// size does not affect the result of a pass.
int64_t PassBatchSize(const Job& job, int64_t global_batch_size, int num_replicas,
                      int declared_replicas = 0);

// Makes one pass. Called by every replica in its own thread. All modules are in evaluation mode
// during the pass, and return to their previous modes afterwards.
absl::StatusOr<PassResult> RunPass(const Job& job, Replica* replica,
                                   collective::Communicator* communicator,
                                   const PassOptions& options);

// The sums over the examples of one part of a pass.
struct PartSums {
  std::vector<double> sums;  // Loss, examples, then the sums of all metrics.
  double loss_divisor = 0;   // Divisor of the loss sum. 0 if the program computes no loss.
  std::map<std::string, checkpoint::ReportedSum> values;  // Values that the program reported.
};

// Runs eval_step on `batch`, which is one part of a pass, on a single replica. Sets `shown` to the
// images and histograms that the program shows. `shown` may be null. Module modes are as in
// RunPass.
absl::StatusOr<PartSums> EvaluatePart(const Job& job, Replica* replica, Split split,
                                      data::Batch batch, int64_t examples, SummaryData* shown);

// Returns the values of the program's metrics. `sums` has the sums of all metrics, in the order of
// declaration.
std::map<std::string, double> MetricResults(const Replica& replica, const double* sums);

// Returns the images that the metrics draw from `sums`. The tag of an image is the name of its
// metric.
std::vector<ImageReport> MetricImages(const Replica& replica, const double* sums);

// Makes the dataset that the program declared for `split`. Returns an error if the dataset is null
// or fails. A dataset of unknown size is an error unless `may_be_unsized` is true. It is always an
// error if the job skips damaged examples.
absl::StatusOr<data::DatasetPtr> MakeDataset(const Replica& replica, Split split,
                                             bool may_be_unsized = false);
// Makes the program's named datasets, indexed by handle. Returns an error if a dataset is null,
// fails or is empty. If the job skips damaged examples, a dataset of unknown size is an error too.
absl::StatusOr<std::vector<data::DatasetPtr>> MakeNamedDatasets(const Replica& replica);
// Returns an error if the program declares a feature that parameter servers do not support.
absl::Status CheckForServers(const Replica& replica);

}  // namespace muster
