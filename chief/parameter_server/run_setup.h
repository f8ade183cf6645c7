// A RunSetup has the constants of a parameter-server run: how the variables are divided among the
// servers (ps tasks), how the examples are divided into leases (batches for workers), and the
// values that must be the same on all workers. The chief computes these constants after it has
// built the program and read the checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chief/leases/work_table.h"
#include "chief/parameter_server/director/director.h"
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
  int64_t global_batch_size = 0;  // In examples.
  // The integer buffers' values after the program's build().
  push_pull::IntegerBuffers built_integers;
};

// Sets the fields of `setup` except `servers` and `built_integers`. The argument
// `global_batch_size` is the value in the checkpoint, 0 if there is no checkpoint. Returns
// ConfigurationError if the job cannot run with this data and these servers. REQUIRES:
// `setup->servers` is set, and the checkpoint, if there is one, has been restored into `state`.
absl::Status SetUpRun(const DirectorOptions& options, const DirectorStart& start,
                      const ShardState& state, int64_t global_batch_size, RunSetup* setup);

// Returns a client for each ps task, indexed by task.
absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>> MakeShardClients(
    const DirectorOptions& options);

// Returns a request with all variables of the job, from which a ps task computes its own part. The
// caller sets the fields that differ between tasks.
proto::CreateRequest MakeCreateRequest(const DirectorOptions& options, const ShardState& state,
                                       const RunSetup& setup);

}  // namespace muster::chief
