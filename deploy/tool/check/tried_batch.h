// Chooses the batch that `muster check` tries on its single replica (one copy of the program on the
// CPU). Also checks whether all batches of an epoch can be divided among the replicas of the job.
// An exported program, from torch.export.save, may accept only some batch sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/exported/graph/shapes.h"
#include "common/job/job.h"
#include "common/train/replica/replica.h"

namespace muster {

struct TriedBatch {
  int64_t global = 1;  // The job's global batch size.
  // The size of the batch to try. This is `global` if the program accepts a batch of that size on
  // one replica. If not, this is the size of the first replica's part of the global batch.
  int64_t examples = 1;
  int replicas = 1;
  // The replica counts for which the program accepts every replica's part of the batch. Empty if
  // the program accepts all sizes, the caller gave the count, or the job has no global batch size.
  std::vector<int> fitting;
};

// Returns the range of batch sizes that the program accepts, or nullopt if it accepts all sizes.
// Returns an error if the file of an exported program cannot be read.
absl::StatusOr<std::optional<exported::Range>> AdmittedBatches(const Json& program);

// Chooses the batch to try. `admitted` is the result of AdmittedBatches. `replicas` is the number
// of replicas of the job. 0: use the first element of TriedBatch::fitting, or 1 if it is empty.
absl::StatusOr<TriedBatch> BatchToTry(const Job& job, int replicas,
                                      const std::optional<exported::Range>& admitted);

// Checks the batches of an epoch of `size` examples (negative: unknown). Returns ConfigurationError
// if there are too few examples for the job's batches. Also returns ConfigurationError if the
// program does not accept the size of a replica's part of the last batch.
absl::Status CheckEpoch(const Job& job, const Replica& replica, int64_t size,
                        const TriedBatch& tried, const std::optional<exported::Range>& admitted);

// Returns the replica counts, from 1 to `most`, for which a replica gets only one example of at
// least one batch of an epoch. Batch normalization cannot train on one example.
std::vector<int> ReplicasWithSingleExample(const Job& job, const Replica& replica, int64_t size,
                                           int most);
// Returns the result of BatchWithSingleExample (common/train/step/single_example.h) for this job
// with `replicas` replicas. With parameter servers, `replicas` is the number of workers.
std::string SingleExample(const Job& job, const Replica& replica, int64_t size, int replicas);

}  // namespace muster
