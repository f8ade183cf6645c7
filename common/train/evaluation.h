// A pass over the validation or test split with a program's eval_step, by all replicas of a
// communicator together: each example counts once. The training loop makes these passes, and so
// does the evaluator.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/extras.h"
#include "common/collective/communicator.h"
#include "common/train/damaged_examples.h"
#include "common/train/replica.h"
#include "common/train/summary_data.h"

namespace muster {

struct PassOptions {
  Split split = Split::kValidation;
  data::DatasetPtr dataset;
  int64_t batch_size = 1;           // of all replicas together
  int replicas_on_host = 1;         // those that share its cores
  DamageLog* damage_log = nullptr;  // null: one of the pass alone
  bool summary = false;             // what the program shows in the first batch is kept
  // This replica wishes to give the pass up. Every replica asks, now and then; where one of them
  // wishes so, all do.
  std::function<bool()> stop;
  std::function<void(int64_t done, int64_t total)> progress;  // after each batch; may be null
};

struct PassResult {
  bool stopped = false;  // given up: there is nothing else in here
  // The program's metrics, the means of what it reported, and "loss" where it gave one, over all
  // replicas.
  std::map<std::string, double> metrics;
  int64_t examples = 0;
  DamagedExamples::Report left_out;
  SummaryData summary;
};

// How many examples the replicas of a pass take at once, all together: evaluate.batch_size each, or
// what they have of `global_batch_size` in a micro-batch of training; where they are fewer than
// `declared_replicas`, what each of those has, for more may not fit. It does not change what comes
// of the pass.
int64_t PassBatchSize(const Job& job, int64_t global_batch_size, int num_replicas,
                      int declared_replicas = 0);

// Called by every replica, in its own thread. All modules are in evaluation mode during the pass,
// and as they were before when it returns.
absl::StatusOr<PassResult> RunPass(const Job& job, Replica* replica, Communicator* communicator,
                                   const PassOptions& options);

// What a pass adds up.
struct PartSums {
  std::vector<double> sums;                               // loss, examples, then all metrics' sums
  double loss_divisor = 0;                                // of the losses' sum; 0: there were none
  std::map<std::string, checkpoint::ReportedSum> values;  // what the program reported
};

// A part of a pass, on one replica alone: eval_step over these examples. `shown`: gets what the
// program shows in it; null: that is not wanted. Modes as in RunPass.
absl::StatusOr<PartSums> EvaluatePart(const Job& job, Replica* replica, Split split,
                                      data::Batch batch, int64_t examples, SummaryData* shown);

// The values of the program's metrics, from all their sums in order of declaration.
std::map<std::string, double> MetricResults(const Replica& replica, const double* sums);

// What they show of these sums, under their names.
std::vector<ImageReport> MetricImages(const Replica& replica, const double* sums);

// The dataset that the program declared for `split`, made; a null or failing one is refused, and
// one of unknown size unless `may_be_unsized`, and the job does not leave damaged examples out.
absl::StatusOr<data::DatasetPtr> MakeDataset(const Replica& replica, Split split,
                                             bool may_be_unsized = false);
// Likewise those besides the splits, by handle; of any size but 0.
absl::StatusOr<std::vector<data::DatasetPtr>> MakeNamedDatasets(const Replica& replica);
// OK unless the program declares what parameter servers cannot serve.
absl::Status CheckForServers(const Replica& replica);

}  // namespace muster
