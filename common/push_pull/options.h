// The job's "parameter_server" section (docs/job_file.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/push_pull/layout.h"
#include "muster/json.h"

namespace muster::push_pull {

// The type of gradients sent to a server and of parameters sent back. The sender rounds to it.
enum class Compression { kNone, kBFloat16, kFloat16 };

struct ParameterServerOptions {
  // The number of batches that a worker may be ahead of the slowest worker. Absent: no limit.
  // 0 would mean synchronous training. The parser accepts 0, because runs of older versions contain
  // it. CheckMaxStaleness refuses to train with it.
  std::optional<int64_t> max_staleness;
  // The number of copies of each shard: 1 or 2. The copies are on different servers. The parser
  // also accepts the old key "replicas".
  int64_t copies = 1;
  Partitioner partitioner;
  int64_t chunk_bytes = 256 << 10;
  Compression compression = Compression::kNone;
  bool checksum = false;    // Adds checksums to payloads. Headers always have a checksum.
  int64_t connections = 1;  // The number of connections from a worker to a shard: 1 to 16.
};

// Absent keys get their defaults. Errors are ConfigurationErrors that name the key.
absl::StatusOr<ParameterServerOptions> ParseParameterServer(const Json& json);
// Renames old keys of the section to their current names.
void RenameParameterServerKeys(Json* json);

}  // namespace muster::push_pull
