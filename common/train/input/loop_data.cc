#include "common/train/input/loop_data.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/process/cores.h"
#include "common/telemetry/task_meter.h"
#include "common/train/replica/replica_values.h"
#include "common/train/step/step.h"

namespace muster {

using collective::Communicator;

std::shared_ptr<data::Pipeline> SharedPipelines::Get(const std::string& name, const Make& make) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<data::Pipeline>& pipeline = pipelines_[name];
  if (pipeline == nullptr) pipeline = make();
  return pipeline;
}

data::PipelineOptions PipelineOptionsOf(const Job& job) {
  const auto read = data::ParseDataOptions(job.data);  // LoadJob has checked them.
  const data::DataOptions options = read.ok() ? *read : data::DataOptions();
  data::PipelineOptions pipeline;
  pipeline.threads = options.threads.value_or(data::PipelineOptions::kAuto);
  pipeline.prefetch = options.prefetch.value_or(data::PipelineOptions::kAuto);
  pipeline.skip_damaged = options.skip_damaged;
  pipeline.seed = job.seed;
  return pipeline;
}

int LoaderCores(int cores, const FeedPlace& place, bool of_all_local) {
  const int replicas = of_all_local ? place.local_replicas : 1;
  return std::max(1, cores * replicas / std::max(place.replicas_on_host, place.local_replicas));
}

Feed::Feed(data::DatasetPtr dataset, const FeedOptions& given, const FeedPlace& place,
           Communicator* communicator, at::Device device)
    : name_(given.name),
      sized_(dataset->size() >= 0),
      communicator_(communicator),
      device_(device) {
  FeedOptions options = given;
  if (place.meter != nullptr) options.pipeline.depth = place.meter->InputQueue(name_);
  if (CopyAhead::Helps(device)) {
    copies_ = std::make_shared<const CopyAhead>(device);
    options.pipeline.prepare = [copies = copies_](data::LoadedBatch* batch) {
      return copies->Start(batch);
    };
  }
  const int replica = options.distributed ? communicator->rank() : 0;
  const int replicas = options.distributed ? communicator->size() : 1;
  if (options.pipeline.skip_damaged)
    damaged_.emplace(name_, options.distributed ? communicator : nullptr, device, place.damage_log);
  if (sized_) {
    const data::Sampler sampler =
        options.sampler ? *options.sampler
                        : data::Sampler(dataset->size(), options.batch_size, options.drop_remainder,
                                        options.steps_per_epoch);
    // Replicas do not share a pipeline that copies to a device.
    const bool shares = place.shared != nullptr && place.local_replicas > 1 &&
                        options.distributed && copies_ == nullptr;
    local_index_ = shares ? place.local_index : 0;
    options.pipeline.cores = LoaderCores(AvailableCores(), place, shares);
    const auto make = [&] {
      return data::Pipeline::Make(std::move(dataset), sampler, options.start,
                                  replica - local_index_, shares ? place.local_replicas : 1,
                                  replicas, options.pipeline);
    };
    pipeline_ = shares ? place.shared->Get(name_, make) : make();
    return;
  }
  data::StreamPlan plan;
  plan.global_batch_size = options.batch_size;
  plan.drop_remainder = options.drop_remainder;
  plan.steps_per_epoch = options.steps_per_epoch;
  plan.start = options.start;
  plan.start_data = options.start_data;
  pipeline_ =
      data::Pipeline::MakeStream(std::move(dataset), plan, replica, replicas, options.pipeline);
}

absl::StatusOr<FedBatch> Feed::Next() {
  const MonotonicTime start = Clock::now();
  MUSTER_ASSIGN_OR_RETURN(data::LoadedBatch loaded, pipeline_->Next(local_index_));
  FedBatch fed;
  fed.wait_seconds = Seconds(Clock::now() - start);
  static_cast<data::LoadedBatch&>(fed) = std::move(loaded);
  if (!sized_) MUSTER_RETURN_IF_ERROR(AgreeOnBatch(fed));
  if (damaged_) {
    MUSTER_ASSIGN_OR_RETURN(fed.left_out, damaged_->Exchange(fed.damaged));
    fed.global_examples -= fed.left_out.count;
  }
  if (copies_ != nullptr) MUSTER_RETURN_IF_ERROR(copies_->Finish(&fed));
  for (at::Tensor& t : fed.batch) t = t.to(device_, /*non_blocking=*/true);
  return fed;
}

// Without this check, a replica that sees the end of the data early would leave the others waiting
// in the next step.
absl::Status Feed::AgreeOnBatch(const data::LoadedBatch& batch) const {
  return AgreeOn(
      communicator_, device_,
      fmt::format("has {} examples{} in the next batch of the {} dataset", batch.global.size(),
                  batch.next_data.offset == 0 ? ", the last ones of the pass," : "", name_),
      "do all tasks see the same data?");
}

namespace {

FeedOptions OptionsOf(const NamedDataset& declared, const Job& job, int64_t global_batch_size,
                      const checkpoint::DataPlace& place) {
  FeedOptions options;
  options.name = declared.name;
  options.batch_size =
      declared.options.batch_size > 0 ? declared.options.batch_size : global_batch_size;
  options.drop_remainder = declared.options.drop_remainder;
  options.pipeline = PipelineOptionsOf(job);
  // The name is part of the seed, so that two datasets have different shuffles.
  options.pipeline.seed = MixSeed(job.seed, {Fnv1a(declared.name)});
  options.start = options.start_data = {place.epoch, place.offset};
  options.distributed = declared.options.distributed;
  return options;
}

}  // namespace

NamedFeed::NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
                     int64_t global_batch_size, const checkpoint::DataPlace& place,
                     const FeedPlace& where, Communicator* communicator, at::Device device)
    : repeats_(declared.options.repeat),
      place_(place),
      feed_(std::move(dataset), OptionsOf(declared, job, global_batch_size, place), where,
            communicator, device) {}

absl::StatusOr<bool> NamedFeed::Next(FedBatch* loaded) {
  if (place_.over) {
    place_.over = false;
    return false;
  }
  MUSTER_ASSIGN_OR_RETURN(*loaded, feed_.Next());
  place_ = {loaded->next.epoch, loaded->next.offset, !repeats_ && loaded->next.offset == 0};
  return true;
}

// ---- The length of training

bool DropsRemainder(const Job& job, const Replica& replica) {
  return job.drop_remainder.value_or(replica.datasets().at(Split::kTrain).options.drop_remainder);
}

data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size) {
  return data::Sampler(examples, global_batch_size, DropsRemainder(job, replica),
                       job.steps_per_epoch.value_or(0));
}

int64_t TotalSteps(const Job& job, int64_t steps_per_epoch) {
  if (!job.epochs && job.max_steps) return *job.max_steps;
  if (steps_per_epoch == 0) return job.max_steps.value_or(0);
  const int64_t by_epochs = job.epochs.value_or(1) * steps_per_epoch;
  return job.max_steps ? std::min(*job.max_steps, by_epochs) : by_epochs;
}

namespace {

// Returns the number of steps in an epoch. Returns 0 if `examples` is -1 (unknown) and the job does
// not set steps_per_epoch.
int64_t StepsPerEpoch(const Job& job, const Replica& replica, int64_t examples,
                      int64_t global_batch_size) {
  if (examples < 0) return job.steps_per_epoch.value_or(0);
  return TrainSampler(job, replica, examples, global_batch_size).batches_per_epoch();
}

absl::StatusOr<ScheduleContext> MakeSchedule(const Job& job, int64_t examples,
                                             int64_t steps_per_epoch, int64_t global_batch_size,
                                             int64_t num_replicas) {
  ScheduleContext schedule;
  schedule.num_replicas = num_replicas;
  schedule.steps_per_epoch = steps_per_epoch;
  if (examples >= 0 && schedule.steps_per_epoch == 0) {
    return ConfigurationError(
        fmt::format("the train dataset has {} examples, fewer than the global batch of {}, and "
                    "drop_remainder drops them",
                    examples, global_batch_size));
  }
  schedule.total_steps = TotalSteps(job, schedule.steps_per_epoch);
  return schedule;
}

}  // namespace

absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const Replica& replica, int64_t examples,
                                           int64_t global_batch_size, int64_t num_replicas) {
  return MakeSchedule(job, examples, StepsPerEpoch(job, replica, examples, global_batch_size),
                      global_batch_size, num_replicas);
}

absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const TrainData& data,
                                           int64_t global_batch_size, int64_t num_replicas) {
  return MakeSchedule(job, data.examples, data.steps_per_epoch, global_batch_size, num_replicas);
}

// ---- Training data of a replica

namespace {

// Returns the number of examples in each replica's share.
absl::StatusOr<std::vector<int64_t>> GatherSizes(Communicator* communicator, at::Device device,
                                                 int64_t mine) {
  std::vector<int64_t> sizes(communicator->size());
  sizes[communicator->rank()] = mine;
  at::Tensor all = at::tensor(sizes, at::kLong).to(device);
  MUSTER_RETURN_IF_ERROR(communicator->AllReduce(BufferOf(all), ReduceOp::kSum)->Wait());
  all = all.to(at::kCPU);
  sizes.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + sizes.size());
  return sizes;
}

}  // namespace

absl::StatusOr<TrainData> MakeTrainData(const Job& job, const Replica& replica,
                                        data::DatasetPtr whole, int64_t global_batch_size,
                                        Communicator* communicator) {
  MUSTER_ASSIGN_OR_RETURN(const data::DataOptions options, data::ParseDataOptions(job.data));
  TrainData data;
  data.dataset = std::move(whole);
  data.examples = data.dataset->size();
  data.seed = job.seed;
  data.auto_shard = options.auto_shard;
  const int rank = communicator->rank(), replicas = communicator->size();
  if (options.auto_shard == data::AutoShard::kData) {
    if (data.examples >= 0)
      data.sampler = TrainSampler(job, replica, data.examples, global_batch_size);
    data.steps_per_epoch = StepsPerEpoch(job, replica, data.examples, global_batch_size);
    return data;
  }
  // An index means a different example on each replica. Each replica therefore has an order and
  // random numbers of its own. Those of replica 0 are equal to those of a run with one replica.
  if (rank > 0) data.seed = MixSeed(job.seed, {Fnv1a("auto_shard"), static_cast<uint64_t>(rank)});
  std::vector<int64_t> shares(replicas, data.examples);
  if (options.auto_shard == data::AutoShard::kOff) {
    if (data.examples < 0) {
      return ConfigurationError(
          "data.auto_shard is \"off\", and the train dataset does not know its size: give it one, "
          "or "
          "use \"data\"");
    }
    data.examples *= replicas;
  } else {
    MUSTER_ASSIGN_OR_RETURN(data.dataset, replica.job_datasets().OpenShare(rank, replicas));
    MUSTER_ASSIGN_OR_RETURN(shares,
                            GatherSizes(communicator, replica.device(), data.dataset->size()));
    data.examples = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  }
  data.sampler =
      data::Sampler::FromShares(std::move(shares), global_batch_size, DropsRemainder(job, replica),
                                job.steps_per_epoch.value_or(0));
  data.steps_per_epoch = data.sampler->batches_per_epoch();
  return data;
}

}  // namespace muster
