// Passes over a validation or test split. In a pass, the replicas together run the program's
// eval_step once on every example of the split. A replica is one device's copy of the model, with
// its own thread. The training loop and the evaluator make passes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/state/extras.h"
#include "common/collective/communicator.h"
#include "common/train/input/damaged_examples.h"
#include "common/train/replica/replica.h"
#include "common/train/summary_data.h"

namespace muster {

struct PassOptions {
  Split split = Split::kValidation;
  data::DatasetPtr dataset;
  int64_t batch_size = 1;    // Examples in a batch, over all replicas.
  int replicas_on_host = 1;  // Replicas of all processes on this host. They share its cores.
  // The log of damaged examples. If null, the pass uses a log of its own.
  DamageLog* damage_log = nullptr;
  // True if PassResult::summary must have the images and histograms that the program shows in the
  // first batch.
  bool summary = false;
  // Returns true if the pass must stop. Each replica calls its own function. With one replica, the
  // function is called before each batch. With several replicas, it is called about four times a
  // second. If the function of one replica returns true, all replicas stop. May be null.
  std::function<bool()> stop;
  // Called after each batch. `done` and `total` count batches. May be null.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct PassResult {
  bool stopped = false;  // True if the pass was stopped. All other fields are then empty.
  // Metrics over the examples of all replicas. They are the program's metrics, the means of the
  // values that eval_step reports, and "loss" if eval_step computes a loss.
  std::map<std::string, double> metrics;
  int64_t examples = 0;
  DamagedExamples::Report left_out;  // Damaged examples that the pass left out.
  SummaryData summary;
};

// Returns the number of examples in one batch of a pass, over all replicas. Each replica takes
// evaluate.batch_size examples. If this key is not set, each replica takes as many as in a
// micro-batch of training. `declared_replicas` is the number of replicas in the whole cluster. If
// members were lost, `num_replicas` is lower. The batch of each replica then does not grow, because
// a larger batch may not fit in memory. The batch size does not affect the result of a pass.
int64_t PassBatchSize(const Job& job, int64_t global_batch_size, int num_replicas,
                      int declared_replicas = 0);

// Makes one pass. Called by every replica in its own thread. During the pass, all modules are in
// evaluation mode. After the pass, each module has its previous mode again.
absl::StatusOr<PassResult> RunPass(const Job& job, Replica* replica,
                                   collective::Communicator* communicator,
                                   const PassOptions& options);

// Sums over the examples of one part of a pass. In a parameter-server job, the chief divides a
// split into parts and assigns each part to one worker.
struct PartSums {
  // The sum of the losses, the number of examples, and then the sums of each metric, in the order
  // in which the program declares the metrics.
  std::vector<double> sums;
  // The divisor for the sum of the losses. 0 if eval_step computes no loss.
  double loss_divisor = 0;
  // Values that eval_step reports, by name.
  std::map<std::string, checkpoint::ReportedSum> values;
};

// Runs eval_step on `batch`, one part of a pass or a piece of a part. `examples` is the number of
// examples in `batch`. Sets `*shown` to the images and histograms that the program shows. `shown`
// may be null. Modules are in evaluation mode during the call, as in RunPass.
absl::StatusOr<PartSums> EvaluatePart(const Job& job, Replica* replica, Split split,
                                      data::Batch batch, int64_t examples, SummaryData* shown);

// Returns the values of the program's metrics. `sums` points to the sums of the first declared
// metric. The sums of the other metrics follow in the order of declaration.
std::map<std::string, double> MetricResults(const Replica& replica, const double* sums);

// Returns the images that metrics draw, such as a confusion matrix. `sums` has the same meaning as
// for MetricResults. The tag of an image is the name of its metric.
std::vector<ImageReport> MetricImages(const Replica& replica, const double* sums);

// Makes the dataset that the program declares for `split`. Returns an error if the dataset is null
// or the program fails to make it. A dataset of unknown size is an error in two cases:
// `may_be_unsized` is false, or the job leaves out damaged examples (on_error "skip").
absl::StatusOr<data::DatasetPtr> MakeDataset(const Replica& replica, Split split,
                                             bool may_be_unsized = false);
// Makes the datasets that the program declares by name, besides its splits. The result is indexed
// by DatasetHandle::index. Returns an error if a dataset is null or empty, or if the program fails
// to make it. A dataset of unknown size is an error if the job leaves out damaged examples.
absl::StatusOr<std::vector<data::DatasetPtr>> MakeNamedDatasets(const Replica& replica);
// Returns an error if the job or the program uses data in a way that parameter-server jobs do not
// support: an auto_shard other than "data", or a named dataset.
absl::Status CheckForServers(const Replica& replica);

}  // namespace muster
