#include "deploy/tool/check/tried_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/data/pipeline.h"
#include "common/exported/graph/archive.h"
#include "common/exported/graph/model.h"
#include "common/exported/program.h"
#include "common/job/program_path.h"
#include "common/train/input/loop_data.h"
#include "common/train/step/single_example.h"

namespace muster {
namespace {

int64_t GlobalBatch(const Job& job, int replicas) {
  return job.global_batch_size.value_or(job.per_replica_batch_size.value_or(1) * replicas);
}

// Returns the size of a part of the batch that is not admitted, or nullopt if all parts are. Parts
// without examples do not count.
std::optional<int64_t> NotAdmitted(const Job& job, int64_t batch, int replicas,
                                   const exported::Range& admitted) {
  const int micro_batches = static_cast<int>(job.accumulate_steps);
  for (const int replica : {0, replicas - 1}) {
    const int64_t slice = data::ReplicaSlice(0, batch, replica, replicas).size();
    for (const int micro : {0, micro_batches - 1}) {
      const int64_t part = data::ReplicaSlice(0, slice, micro, micro_batches).size();
      if (part > 0 && !admitted.Holds(part)) return part;
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<exported::Range>> AdmittedBatches(const Json& program) {
  if (!exported::IsExported(program)) return std::nullopt;
  MUSTER_ASSIGN_OR_RETURN(const exported::Archive archive,
                          exported::ReadArchive(ProgramFile(program), program.value("model", "")));
  MUSTER_ASSIGN_OR_RETURN(const auto model, exported::Model::Make(archive, c10::kCPU));
  return model->shapes().batch();
}

absl::StatusOr<TriedBatch> BatchToTry(const Job& job, int replicas,
                                      const std::optional<exported::Range>& admitted) {
  if (!job.global_batch_size && !job.per_replica_batch_size) {
    return ConfigurationError(
        "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
  }
  TriedBatch tried;
  tried.replicas = std::max(1, replicas);
  tried.global = tried.examples = GlobalBatch(job, tried.replicas);
  if (!admitted) return tried;
  // The batch of the file may be one replica's part of the job's batch.
  constexpr int64_t kMax = 4096;
  const int64_t most = replicas > 0 || !job.global_batch_size ? 0 : std::min(tried.global, kMax);
  for (int n = 1; n <= most; ++n)
    if (!NotAdmitted(job, tried.global, n, *admitted)) tried.fitting.push_back(n);
  if (!tried.fitting.empty()) tried.replicas = tried.fitting.front();
  if (NotAdmitted(job, tried.global, 1, *admitted))
    tried.examples = data::ReplicaSlice(0, tried.global, 0, tried.replicas).size();
  return tried;
}

absl::Status CheckEpoch(const Job& job, const Replica& replica, int64_t size,
                        const TriedBatch& tried, const std::optional<exported::Range>& admitted) {
  MUSTER_RETURN_IF_ERROR(ScheduleOf(job, replica, size, tried.global, tried.replicas).status());
  if (size < 0 || !admitted) return absl::OkStatus();
  const data::Sampler sampler = TrainSampler(job, replica, size, tried.global);
  const int64_t last = sampler.examples_per_epoch() % tried.global;
  const std::optional<int64_t> part = NotAdmitted(job, last, tried.replicas, *admitted);
  if (!part || TotalSteps(job, sampler.batches_per_epoch()) < sampler.batches_per_epoch())
    return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "the last batch of an epoch has {} examples, which leaves a replica of {} a part of {}, and "
      "{} was not exported for such a batch: set \"drop_remainder\": true, or another "
      "global_batch_size",
      last, tried.replicas, *part, ProgramFile(job.program)));
}

std::string SingleExample(const Job& job, const Replica& replica, int64_t size, int replicas) {
  const int64_t batch = GlobalBatch(job, replicas);
  // The last batch of a stream is unknown.
  const data::Sampler sampler = size >= 0 ? TrainSampler(job, replica, size, batch)
                                          : data::Sampler(batch, batch, /*drop_remainder=*/false);
  if (sampler.batches_per_epoch() == 0) return "";
  if (job.strategy == StrategyKind::kParameterServer) {
    // Each lease is computed by a single worker.
    const data::Sampler leases(sampler.examples_per_epoch(), (batch + replicas - 1) / replicas,
                               /*drop_remainder=*/false);
    return BatchWithSingleExample(leases, TotalSteps(job, leases.batches_per_epoch()), 1,
                                  job.accumulate_steps);
  }
  return BatchWithSingleExample(sampler, TotalSteps(job, sampler.batches_per_epoch()), replicas,
                                job.accumulate_steps);
}

std::vector<int> ReplicasWithSingleExample(const Job& job, const Replica& replica, int64_t size,
                                           int most) {
  std::vector<int> found;
  for (int replicas = 1; replicas <= most; ++replicas)
    if (!SingleExample(job, replica, size, replicas).empty()) found.push_back(replicas);
  return found;
}

}  // namespace muster
