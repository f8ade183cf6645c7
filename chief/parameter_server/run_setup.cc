#include "chief/parameter_server/run_setup.h"

#include <fmt/format.h>

#include <limits>

#include "common/push_pull/variable_messages.h"

namespace muster::chief {
namespace {

absl::Status SetUpBatches(const DirectorOptions& options, const DirectorStart& start,
                          const ShardState& state, RunSetup* setup) {
  const Job& job = options.job;
  LeaseTable::Options& leases = setup->work.leases;
  leases.examples = state.EpochExamples(start.train_examples, setup->global_batch_size);
  if (leases.examples <= 0)
    return ConfigurationError(
        fmt::format("the train dataset has {} examples, fewer than the global batch of {}, and "
                    "drop_remainder drops them",
                    start.train_examples, setup->global_batch_size));
  leases.batch = (setup->global_batch_size + options.workers - 1) / options.workers;
  leases.epochs = job.epochs.value_or(job.max_steps ? std::numeric_limits<int32_t>::max() : 1);
  leases.max_steps = job.max_steps;
  setup->work.max_staleness = setup->servers.max_staleness;
  setup->work.workers = options.workers;
  setup->work.shards = static_cast<int>(options.servers.size());
  setup->work.summary_every_steps = start.observers.empty() ? 0 : job.summary.every_steps;
  setup->work.metric_sums = state.metric_sums();
  return absl::OkStatus();
}

absl::Status SetUpLayout(const DirectorOptions& options, const ShardState& state, RunSetup* setup) {
  const push_pull::LayoutOptions layout{static_cast<int>(options.servers.size()),
                                        setup->servers.partitioner, setup->servers.chunk_bytes};
  MUSTER_RETURN_IF_ERROR(push_pull::CheckSizes(state.variables(), layout));
  setup->layout = push_pull::MakeLayout(state.variables(), layout);
  setup->digest = push_pull::DigestOf(state.variables(), layout);
  setup->tables = state.tables();
  return absl::OkStatus();
}

}  // namespace

absl::Status SetUpRun(const DirectorOptions& options, const DirectorStart& start,
                      const ShardState& state, int64_t global_batch_size, RunSetup* setup) {
  const Job& job = options.job;
  if (!job.global_batch_size && !job.per_replica_batch_size)
    return ConfigurationError(
        "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
  setup->global_batch_size = global_batch_size;
  if (setup->global_batch_size == 0)
    setup->global_batch_size =
        job.global_batch_size.value_or(job.per_replica_batch_size.value_or(0) * options.workers);
  MUSTER_RETURN_IF_ERROR(SetUpBatches(options, start, state, setup));
  return SetUpLayout(options, state, setup);
}

absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>> MakeShardClients(
    const DirectorOptions& options) {
  const int servers = static_cast<int>(options.servers.size());
  std::vector<std::unique_ptr<ShardClient>> clients(servers);
  for (int task = 0; task < servers; ++task) {
    ShardClient::Options client;
    client.task = task;
    client.address = options.servers[task];
    client.term = options.term;
    client.channel = options.channel;
    MUSTER_ASSIGN_OR_RETURN(clients[task], ShardClient::Make(client));
  }
  return clients;
}

proto::CreateRequest MakeCreateRequest(const DirectorOptions& options, const ShardState& state,
                                       const RunSetup& setup) {
  proto::CreateRequest create;
  create.set_run_id(options.run_id ? options.run_id() : "");
  *create.mutable_variables() = push_pull::ToMessages(state.variables());
  for (const std::string& optimizer : state.optimizers()) create.add_optimizers(optimizer);
  create.set_parameter_server(Dump(options.job.parameter_server));
  create.set_servers(static_cast<int>(options.servers.size()));
  create.set_digest(setup.digest);
  return create;
}

}  // namespace muster::chief
