// A RunSetup has the constants of a parameter-server run: how variables are divided among servers,
// how examples are divided into leases, and what workers must agree on. They are known once the
// program is built and the checkpoint is read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chief/leases/work_table.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/shard_state.h"
#include "chief/shards/shard_client.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/options.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

struct RunSetup {
  push_pull::ParameterServerOptions servers;
  push_pull::Layout layout;
  std::string digest;               // Digest of the layout.
  std::vector<ServedTable> tables;  // Embedding tables.
  WorkTable::Options work;
  int64_t global_batch_size = 0;             // In examples.
  push_pull::IntegerBuffers built_integers;  // The integer buffers' values after build().
};

// Sets the fields of `setup` except `servers` and `built_integers`. REQUIRES: `setup->servers` is
// set, and `state` has restored the checkpoint, if there is one. `global_batch_size` is the
// checkpoint's, 0 if there is none. Returns ConfigurationError if the job cannot run with this data
// and these servers.
absl::Status SetUpRun(const DirectorOptions& options, const DirectorStart& start,
                      const ShardState& state, int64_t global_batch_size, RunSetup* setup);

// Returns a client for each ps task, indexed by task.
absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>> MakeShardClients(
    const DirectorOptions& options);

// Returns the request by which a ps task learns what it serves, without the fields that differ
// between tasks.
proto::CreateRequest MakeCreateRequest(const DirectorOptions& options, const ShardState& state,
                                       const RunSetup& setup);

}  // namespace muster::chief
