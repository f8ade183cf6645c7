#include "chief/shard_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "common/train/evaluation.h"
#include "common/train/loop.h"
#include "common/train/replica.h"
#include "common/train/snapshot.h"
#include "common/train/summary_data.h"
#include "common/train/variables.h"

namespace muster {
namespace {

using Spans = std::vector<std::span<float>>;

constexpr const char* kStep = "step";  // the slot that is one number

// The pieces of elements [begin, begin + elements) of what the spans cover, one after the other:
// copy(memory, elements before it, elements in it).
template <typename Copy>
void Walk(const Spans& spans, int64_t begin, int64_t elements, const Copy& copy) {
  int64_t at = 0, done = 0;
  for (const std::span<float>& span : spans) {
    const auto size = static_cast<int64_t>(span.size());
    const int64_t from = std::max(begin + done - at, int64_t{0});
    const int64_t count = std::min(size - from, elements - done);
    if (count > 0) {
      copy(span.data() + from, done, count);
      done += count;
    }
    at += size;
    if (done == elements) return;
  }
}

std::string Bytes(const Spans& spans, const Chunk& chunk) {
  std::string bytes(chunk.elements() * sizeof(float), '\0');
  Walk(spans, chunk.begin, chunk.elements(), [&](const float* from, int64_t at, int64_t count) {
    std::memcpy(bytes.data() + at * sizeof(float), from, count * sizeof(float));
  });
  return bytes;
}

absl::Status Put(const std::string& bytes, const Spans& spans, const Chunk& chunk,
                 const std::string& what) {
  if (bytes.size() != chunk.elements() * sizeof(float))
    return DataError(fmt::format("{} has {} bytes, not {}", what, bytes.size(),
                                 chunk.elements() * sizeof(float)));
  Walk(spans, chunk.begin, chunk.elements(), [&](float* to, int64_t at, int64_t count) {
    std::memcpy(to, bytes.data() + at * sizeof(float), count * sizeof(float));
  });
  return absl::OkStatus();
}

class ReplicaState final : public ShardState {
 public:
  ReplicaState(const Job& job, Replica* replica, ServedVariables served)
      : job_(job), replica_(replica), served_(std::move(served)) {
    for (size_t v = 0; v < served_.specs.size(); ++v) places_.push_back(PlaceOf(v));
  }

  const std::vector<VariableSpec>& variables() const override { return served_.specs; }
  std::vector<std::string> optimizers() const override {
    std::vector<std::string> all;
    for (const Json& optimizer : served_.optimizers) all.push_back(Dump(optimizer));
    return all;
  }
  size_t metric_sums() const override {
    return InitialLoopState(job_, *replica_).epoch_metric_sums.size();
  }
  int64_t EpochExamples(int64_t train_examples, int64_t global_batch_size) const override {
    return TrainSampler(job_, *replica_, train_examples, global_batch_size).examples_per_epoch();
  }
  int64_t TotalSteps(int64_t steps_per_epoch) const override {
    return muster::TotalSteps(job_, steps_per_epoch);
  }

  absl::StatusOr<checkpoint::TrainingState> Restore(const checkpoint::Snapshot& snapshot) override {
    LoopState state;
    MUSTER_RETURN_IF_ERROR(RestoreReplica(snapshot, job_, replica_, &state));
    checkpoint::TrainingState restored = snapshot.state;
    restored.epoch_metric_sums = state.epoch_metric_sums;
    return restored;
  }
  ShardContents Encode(const Layout& layout, int64_t steps) const override;
  absl::Status Decode(const Layout& layout, const ShardContents& contents) override;
  absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) override;

  std::map<std::string, double> Metrics(const std::vector<double>& sums) const override {
    return MetricResults(*replica_, sums.data());
  }
  void Describe(StartReport* report) const override;
  std::vector<HistogramReport> Parameters() const override {
    std::vector<HistogramReport> all;
    for (const auto& [name, parameter] : NamedParameters(*replica_))
      all.push_back(MakeHistogram("parameters/" + name, parameter));
    return all;
  }

 private:
  // Where a variable's slots are: (optimizer, parameter); none of the rest.
  using Place = std::optional<std::pair<size_t, size_t>>;
  Place PlaceOf(size_t variable) const;
  std::vector<std::string> ShapedSlots(int optimizer) const;
  size_t MostSlots() const;
  // By slot, then by shard: the memory of the slot's tensors in the place of the parameters'.
  std::vector<std::vector<Spans>> SlotSpans(const Layout& layout) const;
  // The tensors of the optimizer's "step"; none where it keeps none.
  std::vector<at::Tensor> StepsOf(int optimizer) const;

  const Job job_;
  Replica* const replica_;
  const ServedVariables served_;
  std::vector<Place> places_;
  SnapshotTaker taker_;
};

ReplicaState::Place ReplicaState::PlaceOf(size_t variable) const {
  const VariableSpec& spec = served_.specs[variable];
  if (spec.optimizer == served_.rest()) return std::nullopt;
  const auto& names = replica_->optimizers()[spec.optimizer].parameter_names;
  const auto found = std::find(names.begin(), names.end(), spec.name);
  return std::pair{static_cast<size_t>(spec.optimizer), static_cast<size_t>(found - names.begin())};
}

std::vector<std::string> ReplicaState::ShapedSlots(int optimizer) const {
  if (optimizer == served_.rest()) return {};
  std::vector<std::string> names = replica_->optimizers()[optimizer].rule->slot_names();
  std::erase(names, std::string(kStep));
  return names;
}

size_t ReplicaState::MostSlots() const {
  size_t most = 0;
  for (int o = 0; o < served_.rest(); ++o) most = std::max(most, ShapedSlots(o).size());
  return most;
}

std::vector<std::vector<Spans>> ReplicaState::SlotSpans(const Layout& layout) const {
  std::vector<std::vector<Spans>> all;
  for (size_t slot = 0; slot < MostSlots(); ++slot) {
    std::vector<at::Tensor> tensors = served_.tensors;  // of those without: never looked at
    for (size_t v = 0; v < tensors.size(); ++v) {
      if (!places_[v]) continue;
      const auto& [optimizer, parameter] = *places_[v];
      const std::vector<std::string> shaped = ShapedSlots(static_cast<int>(optimizer));
      if (slot >= shaped.size()) continue;
      const Optimizer& rule = *replica_->optimizers()[optimizer].rule;
      const auto& names = rule.slot_names();
      const auto index = std::find(names.begin(), names.end(), shaped[slot]) - names.begin();
      tensors[v] = rule.slot(static_cast<int>(index))[parameter].detach();
    }
    all.push_back(ShardSpans(layout, served_.specs, tensors));
  }
  return all;
}

std::vector<at::Tensor> ReplicaState::StepsOf(int optimizer) const {
  if (optimizer == served_.rest()) return {};
  const Optimizer& rule = *replica_->optimizers()[optimizer].rule;
  const auto& names = rule.slot_names();
  const auto found = std::find(names.begin(), names.end(), kStep);
  if (found == names.end()) return {};
  return rule.slot(static_cast<int>(found - names.begin()));
}

ShardContents ReplicaState::Encode(const Layout& layout, int64_t steps) const {
  const std::vector<Spans> parameters = ShardSpans(layout, served_.specs, served_.tensors);
  const std::vector<std::vector<Spans>> slots = SlotSpans(layout);
  std::vector<int64_t> updates;
  for (size_t o = 0; o < served_.optimizers.size(); ++o) {
    updates.push_back(steps);
    const std::vector<at::Tensor> own = StepsOf(static_cast<int>(o));
    if (!own.empty()) updates.back() = 0;
    for (const at::Tensor& step : own)
      updates.back() = std::max(updates.back(), static_cast<int64_t>(step.item<double>()));
  }
  ShardContents contents(layout.chunks.size());
  for (size_t shard = 0; shard < layout.chunks.size(); ++shard) {
    for (size_t c = 0; c < layout.chunks[shard].size(); ++c) {
      const Chunk& chunk = layout.chunks[shard][c];
      proto::ChunkContent& content = contents[shard].emplace_back();
      content.set_shard(static_cast<int>(shard));
      content.set_chunk(static_cast<int>(c));
      content.set_updates(updates[chunk.optimizer]);
      content.set_step(static_cast<uint64_t>(steps));
      content.set_parameters(Bytes(parameters[shard], chunk));
      if (steps == 0) continue;  // slots are as the rule begins
      const size_t count = ShapedSlots(chunk.optimizer).size();
      for (size_t s = 0; s < count; ++s) content.add_slots(Bytes(slots[s][shard], chunk));
    }
  }
  return contents;
}

absl::Status ReplicaState::Decode(const Layout& layout, const ShardContents& contents) {
  const at::NoGradGuard no_grad;
  const std::vector<Spans> parameters = ShardSpans(layout, served_.specs, served_.tensors);
  const std::vector<std::vector<Spans>> slots = SlotSpans(layout);
  std::vector<int64_t> updates(served_.optimizers.size());
  for (size_t shard = 0; shard < layout.chunks.size(); ++shard) {
    const auto& chunks = layout.chunks[shard];
    if (contents[shard].size() != chunks.size())
      return DataError(fmt::format("shard {} came with {} chunks, not {}", shard,
                                   contents[shard].size(), chunks.size()));
    for (size_t c = 0; c < chunks.size(); ++c) {
      const Chunk& chunk = chunks[c];
      const proto::ChunkContent& content = contents[shard][c];
      const std::string what = fmt::format("chunk {} of shard {}", c, shard);
      MUSTER_RETURN_IF_ERROR(Put(content.parameters(), parameters[shard], chunk, what));
      const size_t count = ShapedSlots(chunk.optimizer).size();
      if (static_cast<size_t>(content.slots_size()) != count)
        return DataError(fmt::format("{} has {} slots, not {}", what, content.slots_size(), count));
      for (size_t s = 0; s < count; ++s)
        MUSTER_RETURN_IF_ERROR(
            Put(content.slots(static_cast<int>(s)), slots[s][shard], chunk, what));
      updates[chunk.optimizer] = std::max(updates[chunk.optimizer], content.updates());
    }
  }
  for (int o = 0; o < served_.rest(); ++o)
    for (const at::Tensor& step : StepsOf(o)) step.detach().fill_(static_cast<double>(updates[o]));
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::Snapshot> ReplicaState::Take(const checkpoint::TrainingState& state) {
  LoopState loop = InitialLoopState(job_, *replica_);  // for the loss scaler's
  loop.steps = state.step;
  loop.position = {state.epoch, state.offset};
  loop.examples = state.examples;
  loop.epoch_loss_sum = state.epoch_loss_sum;
  loop.epoch_examples = state.epoch_examples;
  loop.epoch_metric_sums = state.epoch_metric_sums;
  loop.validation_due = state.validation_due;
  loop.test_due = state.test_due;
  loop.global_batch_size = state.global_batch_size;
  return taker_.Take(*replica_, loop);
}

void ReplicaState::Describe(StartReport* report) const {
  report->program =
      job_.program.is_string() ? job_.program.get<std::string>() : job_.program.dump();
  for (const NamedModel& model : replica_->models()) {
    int64_t count = 0;
    for (const auto& [name, parameter] : model.parameters) {
      count += parameter.numel();
      report->parameters.push_back(
          {model.name, name, parameter.sizes().vec(), parameter.requires_grad()});
    }
    report->parameter_counts.emplace_back(model.name, count);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardState>> MakeShardState(const Job& job, Replica* replica) {
  MUSTER_ASSIGN_OR_RETURN(ServedVariables served, VariablesToServe(replica));
  MUSTER_RETURN_IF_ERROR(CheckSavable(*replica));
  return std::make_unique<ReplicaState>(job, replica, std::move(served));
}

std::unique_ptr<Director> Director::Make(DirectorOptions options) {
  return MakeDirector(std::move(options), [](const Job& job, const DirectorStart& start) {
    return MakeShardState(job, start.replica);
  });
}

}  // namespace muster
