// The job's "parameter_server" section (docs/job_file.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/push_pull/layout.h"
#include "muster/json.h"

namespace muster {

// The type to which gradients are rounded on their way to a server, and parameters on their way
// back.
enum class Compression { kNone, kBFloat16, kFloat16 };

struct ParameterServerOptions {
  // The number of batches that a worker may be ahead of the slowest worker. Absent: no limit. 0
  // would be synchronous training. It is parsed, because runs of older versions contain it, but
  // CheckMaxStaleness refuses to train with it.
  std::optional<int64_t> max_staleness;
  // The number of copies of each shard, on different servers: 1 or 2. The old key "replicas" is
  // also accepted.
  int64_t copies = 1;
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
  Compression compression = Compression::kNone;
  bool checksum = false;    // Adds checksums to payloads. Headers always have one.
  int64_t connections = 1;  // The number of connections from a worker to a shard: 1 to 16.
};

// Absent keys get their defaults. Errors are ConfigurationErrors that name the key.
absl::StatusOr<ParameterServerOptions> ParseParameterServer(const Json& json);
// Replaces old names of keys in the section by the current ones.
void RenameParameterServerKeys(Json* json);

}  // namespace muster
