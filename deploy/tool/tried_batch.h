// Which batch `muster check` tries on its one replica, and what other batches of an epoch would
// meet on the job's replicas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/exported/shapes.h"
#include "common/train/job.h"
#include "common/train/replica.h"

namespace muster {

struct TriedBatch {
  int64_t global = 1;    // the job's batch, on `replicas`
  int64_t examples = 1;  // what is tried: all of it where one replica may have it
  int replicas = 1;
  std::vector<int> fitting;  // numbers of replicas whose parts are admitted, where not all are
};

// The numbers of examples that an exported program admits; nullopt: any. An error is one of the
// file.
absl::StatusOr<std::optional<exported::Range>> AdmittedBatches(const Json& program);

// `replicas` 0: not given; the least number that gives each of them a batch that is admitted.
absl::StatusOr<TriedBatch> BatchToTry(const Job& job, int replicas,
                                      const std::optional<exported::Range>& admitted);

// A ConfigurationError where the job's batches of `size` examples (below 0: not known) are too few,
// or the last one of an epoch leaves a part that is not admitted.
absl::Status CheckEpoch(const Job& job, const Replica& replica, int64_t size,
                        const TriedBatch& tried, const std::optional<exported::Range>& admitted);

// Numbers of replicas, of 1 to `most`, which some batch of an epoch leaves a single example.
std::vector<int> ReplicasWithSingleExample(const Job& job, const Replica& replica, int64_t size,
                                           int most);
// On so many replicas, or workers of parameter servers: BatchWithSingleExample of this job.
std::string SingleExample(const Job& job, const Replica& replica, int64_t size, int replicas);

}  // namespace muster
