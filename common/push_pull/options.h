// The job's "parameter_server" section (docs/job_file.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/push_pull/layout.h"
#include "muster/json.h"

namespace muster {

// What a gradient is rounded to on its way to a server, and parameters on their way back.
enum class Compression { kNone, kBFloat16, kFloat16 };

struct ParameterServerOptions {
  // Batches that a worker may be ahead of the slowest. Absent: as far as they like. 0, which would
  // be synchronous training, is read, for runs of older versions have it, and not trained with:
  // CheckMaxStaleness.
  std::optional<int64_t> max_staleness;
  int64_t copies = 1;  // of each shard, on as many servers: 1 or 2; "replicas" is read, too
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
  Compression compression = Compression::kNone;
  bool checksum = false;    // of payloads; headers always have one
  int64_t connections = 1;  // of a worker to a shard: 1 to 16
};

// Absent keys have the defaults. A ConfigurationError names the key.
absl::StatusOr<ParameterServerOptions> ParseParameterServer(const Json& json);
// The section by today's names of keys.
void RenameParameterServerKeys(Json* json);

}  // namespace muster
