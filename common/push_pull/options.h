// The options in the job's "parameter_server" section (docs/job_file.md). A shard is the part of
// all variables that one parameter server holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/push_pull/layout.h"
#include "muster/json.h"

namespace muster::push_pull {

// The type to which gradients and parameters are rounded for a transfer. kNone: float32.
enum class Compression { kNone, kBFloat16, kFloat16 };

struct ParameterServerOptions {
  // The maximum number of batches that a worker may be ahead of the slowest worker.
  // Absent: no limit. 0 means synchronous training. The parser accepts 0, because the
  // job.json of an old run may contain 0. CheckMaxStaleness (common/job/job_checks.h)
  // refuses 0.
  std::optional<int64_t> max_staleness;
  // The number of copies of each shard: 1 or 2. The copies are on different servers. The parser
  // accepts "replicas", the old name of this key.
  int64_t copies = 1;
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
  Compression compression = Compression::kNone;
  bool checksum = false;    // True: data have checksums. Headers always have checksums.
  int64_t connections = 1;  // The number of connections from a worker to a shard: 1 to 16.
};

// Parses the section. Errors are ConfigurationErrors that name the key.
absl::StatusOr<ParameterServerOptions> ParseParameterServer(const Json& json);
// Replaces old names of the section's keys by the current names.
void RenameParameterServerKeys(Json* json);

}  // namespace muster::push_pull
