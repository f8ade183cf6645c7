// Chooses the batch that `muster check` tries on its single replica. Also checks whether the other
// batches of an epoch suit the number of replicas in the job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/exported/shapes.h"
#include "common/job/job.h"
#include "common/train/replica/replica.h"

namespace muster {

struct TriedBatch {
  int64_t global = 1;  // The job's global batch size with `replicas` replicas.
  // The size of the tried batch. It is `global` if the program admits a batch of this size on one
  // replica.
  int64_t examples = 1;
  int replicas = 1;
  // Set only if the program limits batch sizes and the caller gave no number of replicas. These are
  // the numbers of replicas that give each replica an admitted batch size.
  std::vector<int> fitting;
};

// Returns the range of batch sizes that an exported program admits. nullopt: any size. Returns the
// errors of reading the program's file.
absl::StatusOr<std::optional<exported::Range>> AdmittedBatches(const Json& program);

// Chooses the batch to try. If `replicas` is 0, uses the smallest number of replicas that gives
// each replica an admitted batch size.
absl::StatusOr<TriedBatch> BatchToTry(const Job& job, int replicas,
                                      const std::optional<exported::Range>& admitted);

// Checks the batches of an epoch of `size` examples (below 0: unknown). Returns ConfigurationError
// if there are too few examples for the job's batches, or if a replica's part of the last batch has
// a size that is not admitted.
absl::Status CheckEpoch(const Job& job, const Replica& replica, int64_t size,
                        const TriedBatch& tried, const std::optional<exported::Range>& admitted);

// Returns the numbers of replicas, from 1 to `most`, with which some batch of an epoch gives a
// replica only one example.
std::vector<int> ReplicasWithSingleExample(const Job& job, const Replica& replica, int64_t size,
                                           int most);
// Returns BatchWithSingleExample for this job with that many replicas. With parameter servers,
// `replicas` is the number of workers.
std::string SingleExample(const Job& job, const Replica& replica, int64_t size, int replicas);

}  // namespace muster
