#include "common/train/loop/loop_input.h"

#include <fmt/format.h>

#include <utility>

#include "common/flight/spans.h"

namespace muster {

bool LeaveShorterEpoch(const TrainData& data, LoopState* state) {
  const int64_t offset = state->offset;
  const bool beyond = data.sampler ? offset >= data.sampler->examples_per_epoch()
                                   : data.steps_per_epoch > 0 &&
                                         offset >= data.steps_per_epoch * state->global_batch_size;
  if (!beyond) return false;
  if (!data.sampler && !state->extras.stream)
    state->extras.stream = {{state->epoch, state->offset}};
  ++state->epoch;
  state->offset = 0;
  state->extras.batch_steps = state->extras.batch_steps_done = 0;
  return true;
}

LoopInput::LoopInput(const LoopReplica& loop) : loop_(loop), state_(loop.state) { OpenFeeds(); }

void LoopInput::OpenFeeds() {
  const LoopContext& context = loop_.context;
  const Job& job = context.job;
  FeedOptions options;
  options.name = SplitName(Split::kTrain);
  options.batch_size = state_.global_batch_size;
  options.drop_remainder = DropsRemainder(job, *loop_.replica);
  options.steps_per_epoch = job.steps_per_epoch.value_or(0);
  options.sampler = loop_.data.sampler;
  options.pipeline = PipelineOptionsOf(job);
  options.pipeline.seed = loop_.data.seed;
  options.start = options.start_data = {state_.epoch, state_.offset};
  if (state_.extras.stream)
    options.start_data = {state_.extras.stream->epoch, state_.extras.stream->offset};
  // Replicas with their own data do not share a pipeline.
  const FeedPlace place{context.pipelines,        loop_.local_index,  context.local_replicas,
                        context.replicas_on_host, context.damage_log, context.meter};
  FeedPlace own = place;
  if (loop_.data.auto_shard != data::AutoShard::kData) own.shared = nullptr;
  const at::Device device = loop_.replica->device();
  feed_ = std::make_unique<Feed>(loop_.data.dataset, options, own, loop_.communicator, device);
  for (size_t i = 0; i < context.named_datasets.size(); ++i) {
    const NamedDataset& declared = loop_.replica->named_datasets()[i];
    named_feeds_.push_back(std::make_unique<NamedFeed>(
        context.named_datasets[i], declared, job, state_.global_batch_size,
        state_.extras.datasets[declared.name], place, loop_.communicator, device));
  }
}

void LoopInput::Next(int64_t steps) {
  if (use_ == Use::kBegun)
    throw StatusError(ProgramError(fmt::format(
        "next was called after {} of the {} steps over a batch: make those that are left first",
        steps_done_, steps_)));
  const bool loads = use_ != Use::kLoaded;
  if (loads) Load();
  if (loads && state_.extras.batch_steps > 0) {
    steps_ = state_.extras.batch_steps;
    steps_done_ = state_.extras.batch_steps_done;
  } else if (loads || steps_done_ == 0) {
    steps_ = steps;
    steps_done_ = 0;
  }
}

void LoopInput::Load() {
  loop_.Enter(Phase::kData);
  EnterSpanStep(state_.step + 1);
  const Span span("input");
  auto loaded = feed_->Next();
  if (!loaded.ok()) throw StatusError(loaded.status());
  batch_ = *std::move(loaded);
  Account(batch_);
  use_ = Use::kLoaded;
}

bool LoopInput::NextOf(DatasetHandle dataset, data::Batch* batch) {
  if (dataset.index < 0 || dataset.index >= static_cast<int>(named_feeds_.size()))
    throw StatusError(ProgramError("next was called with a dataset that build() did not declare"));
  loop_.Enter(Phase::kData);
  const Span span("input");
  FedBatch loaded;
  auto there = named_feeds_[dataset.index]->Next(&loaded);
  if (!there.ok()) throw StatusError(there.status());
  if (*there) *batch = std::move(loaded.batch);
  Account(loaded);
  loop_.Enter(Phase::kForward);
  return *there;
}

void LoopInput::Account(const FedBatch& loaded) {
  left_out_.Add(loaded.left_out);
  wait_seconds_ += loaded.wait_seconds;
}

DamagedExamples::Report LoopInput::TakeLeftOut() { return std::exchange(left_out_, {}); }
double LoopInput::TakeWaitSeconds() { return std::exchange(wait_seconds_, 0); }

absl::Status LoopInput::NoBatchError() const {
  if (use_ == Use::kNone) return ProgramError("step was called without a batch: call next() first");
  return ProgramError(
      fmt::format("step was called once more than the {} that next() gave the batch for: "
                  "call next() first, or say next(&batch, {})",
                  steps_ == 1 ? "one step" : fmt::format("{} steps", steps_), steps_ + 1));
}

void LoopInput::StepDone() {
  ++steps_done_;
  checkpoint::Extras& extras = state_.extras;
  extras.batch_steps = extras.batch_steps_done = 0;
  for (size_t i = 0; i < named_feeds_.size(); ++i)
    extras.datasets[loop_.replica->named_datasets()[i].name] = named_feeds_[i]->place();
  if (steps_done_ < steps_) {
    use_ = Use::kBegun;
    extras.batch_steps = steps_;
    extras.batch_steps_done = steps_done_;
    return;
  }
  use_ = Use::kDone;
  state_.epoch = batch_.next.epoch;
  state_.offset = batch_.next.offset;
  extras.stream.reset();
  if (!(batch_.next == batch_.next_data))
    extras.stream = {{batch_.next_data.epoch, batch_.next_data.offset}};
}

}  // namespace muster
