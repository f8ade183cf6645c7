// The batch that `muster check` tries on its one replica, and the checks of other batches of an
// epoch on the job's replicas.
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
  int64_t global = 1;  // The job's global batch size, with `replicas`.
  // The size of the tried batch. It is the global batch if one replica may have all of it.
  int64_t examples = 1;
  int replicas = 1;
  // The numbers of replicas whose parts of the batch are admitted, if the program limits batch
  // sizes and no number is given. Otherwise empty.
  std::vector<int> fitting;
};

// Returns the batch sizes that an exported program admits. nullopt: any. Errors are those of the
// program's file.
absl::StatusOr<std::optional<exported::Range>> AdmittedBatches(const Json& program);

// `replicas` 0 means not given: the smallest number is used that gives each replica an admitted
// batch.
absl::StatusOr<TriedBatch> BatchToTry(const Job& job, int replicas,
                                      const std::optional<exported::Range>& admitted);

// Returns a ConfigurationError in two cases. `size` examples (below 0: unknown) are too few for the
// job's batches. The last batch of an epoch leaves a part that is not admitted.
absl::Status CheckEpoch(const Job& job, const Replica& replica, int64_t size,
                        const TriedBatch& tried, const std::optional<exported::Range>& admitted);

// Returns the numbers of replicas, from 1 to `most`, for which some batch of an epoch leaves a
// replica with a single example.
std::vector<int> ReplicasWithSingleExample(const Job& job, const Replica& replica, int64_t size,
                                           int most);
// Returns BatchWithSingleExample of this job on that many replicas, or workers with parameter
// servers.
std::string SingleExample(const Job& job, const Replica& replica, int64_t size, int replicas);

}  // namespace muster
