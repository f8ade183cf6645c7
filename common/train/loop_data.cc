#include "common/train/loop_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/hash.h"
#include "common/train/replica_values.h"
#include "common/train/step.h"

namespace muster {

Feed::Feed(data::DatasetPtr dataset, const FeedOptions& options, Communicator* communicator,
           at::Device device)
    : name_(options.name),
      sized_(dataset->size() >= 0),
      communicator_(communicator),
      device_(device) {
  data::PipelineOptions pipeline;
  pipeline.seed = options.seed;
  const int replica = options.distributed ? communicator->rank() : 0;
  const int replicas = options.distributed ? communicator->size() : 1;
  if (sized_) {
    const data::Sampler sampler(dataset->size(), options.batch_size, options.drop_remainder,
                                options.steps_per_epoch);
    pipeline_ = data::Pipeline::Make(std::move(dataset), sampler, options.start, replica, 1,
                                     replicas, pipeline);
    return;
  }
  data::StreamPlan plan;
  plan.global_batch_size = options.batch_size;
  plan.drop_remainder = options.drop_remainder;
  plan.steps_per_epoch = options.steps_per_epoch;
  plan.start = options.start;
  plan.start_data = options.start_data;
  pipeline_ = data::Pipeline::MakeStream(std::move(dataset), plan, replica, replicas, pipeline);
}

absl::StatusOr<data::LoadedBatch> Feed::Next() {
  MUSTER_ASSIGN_OR_RETURN(data::LoadedBatch loaded, pipeline_->Next(0));
  if (!sized_) MUSTER_RETURN_IF_ERROR(AgreeOnBatch(loaded));
  for (at::Tensor& t : loaded.batch) t = t.to(device_, /*non_blocking=*/true);
  return loaded;
}

// A replica that sees the end earlier than another would leave it alone in the next step.
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
  // Two data sets of a program are not shuffled alike.
  options.seed = MixSeed(job.seed, {Fnv1a(declared.name)});
  options.start = options.start_data = {place.epoch, place.offset};
  options.distributed = declared.options.distributed;
  return options;
}

}  // namespace

NamedFeed::NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
                     int64_t global_batch_size, const checkpoint::DataPlace& place,
                     Communicator* communicator, at::Device device)
    : repeats_(declared.options.repeat),
      place_(place),
      feed_(std::move(dataset), OptionsOf(declared, job, global_batch_size, place), communicator,
            device) {}

absl::StatusOr<bool> NamedFeed::Next(data::Batch* batch) {
  if (place_.over) {
    place_.over = false;
    return false;
  }
  MUSTER_ASSIGN_OR_RETURN(data::LoadedBatch loaded, feed_.Next());
  place_ = {loaded.next.epoch, loaded.next.offset, !repeats_ && loaded.next.offset == 0};
  *batch = std::move(loaded.batch);
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

int64_t StepsPerEpoch(const Job& job, const Replica& replica, int64_t examples,
                      int64_t global_batch_size) {
  if (examples < 0) return job.steps_per_epoch.value_or(0);
  return TrainSampler(job, replica, examples, global_batch_size).batches_per_epoch();
}

int64_t TotalSteps(const Job& job, int64_t steps_per_epoch) {
  if (!job.epochs && job.max_steps) return *job.max_steps;
  if (steps_per_epoch == 0) return job.max_steps.value_or(0);
  const int64_t by_epochs = job.epochs.value_or(1) * steps_per_epoch;
  return job.max_steps ? std::min(*job.max_steps, by_epochs) : by_epochs;
}

absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const Replica& replica, int64_t examples,
                                           int64_t global_batch_size, int64_t num_replicas) {
  ScheduleContext schedule;
  schedule.num_replicas = num_replicas;
  schedule.steps_per_epoch = StepsPerEpoch(job, replica, examples, global_batch_size);
  if (examples >= 0 && schedule.steps_per_epoch == 0) {
    return ConfigurationError(
        fmt::format("the train dataset has {} examples, fewer than the global batch of {}, and "
                    "drop_remainder drops them",
                    examples, global_batch_size));
  }
  schedule.total_steps = TotalSteps(job, schedule.steps_per_epoch);
  return schedule;
}

}  // namespace muster
