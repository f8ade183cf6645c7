#include "chief/parameter_server/shard_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "chief/parameter_server/replica_callbacks.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/embedding/embedding_state.h"
#include "common/train/evaluation.h"
#include "common/train/loop/loop.h"
#include "common/train/replica/integer_buffers.h"
#include "common/train/replica/parameter_groups.h"
#include "common/train/replica/replica.h"
#include "common/train/state/snapshot.h"
#include "common/train/state/tied_slots.h"
#include "common/train/state/variables.h"
#include "common/train/summary_data.h"

namespace muster::chief {
namespace {

using push_pull::Chunk;
using push_pull::Layout;
using push_pull::VariableSpec;

constexpr const char* kStep = "step";  // The slot with a single number.
constexpr int64_t kBytes = sizeof(float);

// A part of one variable that a chunk contains.
struct Piece {
  size_t variable = 0;
  int64_t first = 0, count = 0;  // The range in the variable's memory.
  int64_t at = 0;                // The offset in the chunk.
};

std::vector<Piece> PiecesOf(const Layout& layout, int shard, const Chunk& chunk) {
  std::vector<Piece> pieces;
  for (const push_pull::VariablePart& part : layout.parts) {
    const int64_t begin = std::max(part.offset, chunk.begin),
                  end = std::min(part.offset + part.elements(), chunk.end);
    if (part.server == shard && begin < end)
      pieces.push_back({static_cast<size_t>(part.variable), part.begin + begin - part.offset,
                        end - begin, begin - chunk.begin});
  }
  return pieces;
}

// Used until the servers are known.
class NoRows final : public EmbeddingStore {
 public:
  absl::Status Pull(std::span<const RowRead>) override {
    return absl::FailedPreconditionError("the servers that hold the rows are not known yet");
  }
  absl::Status Push(int64_t, std::span<const RowGradients>) override {
    return absl::FailedPreconditionError("the servers that hold the rows are not known yet");
  }
};

class ReplicaState final : public ShardState {
 public:
  ReplicaState(const Job& job, Replica* replica, ServedVariables served)
      : job_(job), replica_(replica), served_(std::move(served)), callbacks_(job_, replica) {
    FindPlaces();
    if (!replica_->embeddings().empty()) replica_->set_embedding_store(&no_rows_);
  }
  ~ReplicaState() override { replica_->set_embedding_store(nullptr); }

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
    files_ = {snapshot.model, UntieSlots(snapshot.optimizer, *replica_), {}};
    if (!replica_->embeddings().empty()) files_.rows = RowsOf(snapshot);
    checkpoint::TensorSet slots = files_.optimizer;
    std::erase_if(slots.tensors, [this](const checkpoint::Tensor& tensor) {
      return std::none_of(slots_.begin(), slots_.end(),
                          [&](const auto& slot) { return slot.name == tensor.name; });
    });
    callbacks_.SetSlots(slots);
    callbacks_.Restored(restored);
    return restored;
  }
  std::vector<ServedTable> tables() const override;
  void ServeRows(EmbeddingStore* rows) override {
    if (!replica_->embeddings().empty()) replica_->set_embedding_store(rows);
  }
  StateFiles TakeFiles() override { return std::exchange(files_, {}); }
  absl::StatusOr<proto::ChunkContent> Encode(const Layout& layout, int shard, int chunk,
                                             int64_t steps, const StateFiles* files) const override;
  void RetainWeights() override {
    if (!weights_.empty()) return;
    for (const at::Tensor& tensor : served_.tensors)
      weights_.push_back(tensor.defined() ? tensor.clone() : tensor);
  }
  void ReleaseWeights() override { weights_.clear(); }
  absl::Status Decode(const Layout& layout, const proto::ChunkContent& content,
                      SlotsFile* slots) override;
  std::vector<checkpoint::TensorInfo> slots() const override { return slots_; }
  void SetSlots(const checkpoint::TensorSet& slots) override { callbacks_.SetSlots(slots); }
  absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) override;

  push_pull::IntegerBuffers Integers() const override { return IntegerBuffersOf(*replica_); }
  absl::Status SetIntegers(const push_pull::IntegerBuffers& values) override {
    return muster::SetIntegers(values, replica_);
  }
  std::map<std::string, double> Metrics(const std::vector<double>& sums) const override {
    return MetricResults(*replica_, sums.data());
  }
  std::vector<ImageReport> MetricImages(const std::vector<double>& sums) const override {
    return muster::MetricImages(*replica_, sums.data());
  }
  void Describe(StartReport* report) const override;
  bool has_callbacks() const override { return !replica_->callbacks().callbacks.empty(); }
  absl::Status BeginCallbacks(const CallbackParts& parts, bool begun,
                              checkpoint::CallbackRecord* record) override {
    return callbacks_.Begin(parts, begun, record);
  }
  absl::Status Fire(Hook hook, CallbackMoment moment) override {
    return callbacks_.Fire(hook, std::move(moment));
  }
  absl::StatusOr<std::optional<CallbackDecision>> Decide() override { return callbacks_.Decide(); }
  void Adopt(const checkpoint::CallbackRecord& record) override { callbacks_.Adopt(record); }
  double LearningRate(const checkpoint::CallbackRecord& record, int64_t steps) const override {
    return callbacks_.LearningRate(record, steps);
  }
  void PutBackWeights(const std::string& callback) override { callbacks_.PutBackWeights(callback); }
  std::vector<HistogramReport> Parameters() const override {
    std::vector<HistogramReport> all;
    for (const auto& [name, parameter] : NamedParameters(*replica_))
      all.push_back(MakeHistogram("parameters/" + name, parameter));
    return all;
  }

 private:
  // The place of a variable in a checkpoint.
  struct Place {
    std::string name;            // The variable's name in the model.
    std::vector<size_t> slots;   // Indices in slots_ of the slots that servers hold.
    std::optional<size_t> step;  // Index in slots_.
  };
  void FindPlaces();
  absl::Status Read(const checkpoint::TensorSet& set, const std::string& name, const Piece& piece,
                    char* to) const;
  void Write(SlotsFile* slots, size_t slot, const Piece& piece, const char* from) const;

  const Job job_;
  Replica* const replica_;
  const ServedVariables served_;
  std::vector<Place> places_;  // Indexed by variable.
  // The weights that RetainWeights copied, indexed by variable. If empty, the replica's weights are
  // used.
  std::vector<at::Tensor> weights_;
  std::vector<checkpoint::TensorInfo> slots_;  // Slots of the optimizers, as in a checkpoint.
  NoRows no_rows_;
  StateFiles files_;  // The files of the restored checkpoint.
  ReplicaCallbacks callbacks_;
};

void ReplicaState::FindPlaces() {
  slots_ = SlotInfos(*replica_);
  const size_t skip = replica_->models().size() == 1 ? replica_->models()[0].name.size() + 1 : 0;
  std::map<std::string, Place> of_parameters;
  size_t next = 0;
  for (const NamedOptimizer& optimizer : replica_->optimizers()) {
    for (const std::string& parameter : optimizer.parameter_names) {
      Place& place = of_parameters[parameter];
      for (const std::string& slot : optimizer.rule->slot_names()) {
        if (slot == kStep)
          place.step = next++;
        else
          place.slots.push_back(next++);
      }
    }
  }
  for (const VariableSpec& spec : served_.specs) {
    Place& place = places_.emplace_back(of_parameters[spec.name]);
    place.name = spec.name.substr(spec.table ? 0 : skip);
  }
}

std::vector<ServedTable> ReplicaState::tables() const {
  std::vector<ServedTable> all;
  for (size_t v = 0; v < served_.specs.size(); ++v)
    if (served_.specs[v].table)
      all.push_back(
          {static_cast<int>(v), served_.specs[v].name, replica_->embeddings()[all.size()].options});
  return all;
}

// Reads a piece of a variable. Files are row-major. The servers may order the elements differently,
// but only within a row of the first dimension.
absl::Status ReplicaState::Read(const checkpoint::TensorSet& set, const std::string& name,
                                const Piece& piece, char* to) const {
  const checkpoint::Tensor* tensor = set.Find(name);
  if (tensor == nullptr) return DataError(fmt::format("\"{}\" is not in the checkpoint", name));
  const VariableSpec& spec = served_.specs[piece.variable];
  if (spec.order.empty())
    return checkpoint::ReadTensor(set, *tensor, piece.first * kBytes, piece.count * kBytes, to);
  std::vector<int64_t> shape = spec.shape;
  const int64_t width = spec.elements() / shape[0], row = piece.first / width;
  shape[0] = (piece.first + piece.count + width - 1) / width - row;
  const at::Tensor rows = at::empty(shape);
  MUSTER_RETURN_IF_ERROR(checkpoint::ReadTensor(set, *tensor, row * width * kBytes,
                                                rows.numel() * kBytes,
                                                static_cast<char*>(rows.data_ptr())));
  const at::Tensor ordered = rows.permute(spec.order).contiguous();
  std::memcpy(to, ordered.const_data_ptr<float>() + piece.first - row * width,
              piece.count * kBytes);
  return absl::OkStatus();
}

void ReplicaState::Write(SlotsFile* slots, size_t slot, const Piece& piece,
                         const char* from) const {
  const VariableSpec& spec = served_.specs[piece.variable];
  const std::string_view bytes(from, piece.count * kBytes);
  if (spec.order.empty()) return slots->Put(slot, piece.first * kBytes, bytes);
  std::string whole = slots->Gather(slot, piece.first * kBytes, bytes);
  if (whole.empty()) return;
  std::vector<int64_t> shape, back(spec.order.size());
  for (size_t d = 0; d < spec.order.size(); ++d) {
    shape.push_back(spec.shape[spec.order[d]]);
    back[spec.order[d]] = static_cast<int64_t>(d);
  }
  const at::Tensor tensor = at::from_blob(whole.data(), shape).permute(back).contiguous();
  slots->Put(slot, 0, {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
}

absl::StatusOr<proto::ChunkContent> ReplicaState::Encode(const Layout& layout, int shard, int c,
                                                         int64_t steps,
                                                         const StateFiles* files) const {
  const Chunk& chunk = layout.chunks[shard][c];
  proto::ChunkContent content;
  content.set_shard(shard);
  content.set_chunk(c);
  content.mutable_parameters()->resize(chunk.elements() * kBytes);
  // The number of updates of the chunk's elements. A variable with a step uses it for bias
  // correction, and its chunk has no other variable.
  std::optional<int64_t> updates;
  for (const Piece& piece : PiecesOf(layout, shard, chunk)) {
    const Place& place = places_[piece.variable];
    char* const to = content.mutable_parameters()->data() + piece.at * kBytes;
    float step = 0;
    if (files == nullptr) {
      const std::vector<at::Tensor>& weights = weights_.empty() ? served_.tensors : weights_;
      std::memcpy(to, weights[piece.variable].const_data_ptr<float>() + piece.first,
                  piece.count * kBytes);
    } else {
      MUSTER_RETURN_IF_ERROR(Read(files->model, place.name, piece, to));
      for (size_t s = 0; s < place.slots.size(); ++s) {
        std::string& slot = static_cast<int>(s) < content.slots_size()
                                ? *content.mutable_slots(static_cast<int>(s))
                                : *content.add_slots();
        slot.resize(chunk.elements() * kBytes);
        MUSTER_RETURN_IF_ERROR(Read(files->optimizer, slots_[place.slots[s]].name, piece,
                                    slot.data() + piece.at * kBytes));
      }
      if (place.step) {
        const std::string& name = slots_[*place.step].name;
        const checkpoint::Tensor* found = files->optimizer.Find(name);
        if (found == nullptr)
          return DataError(fmt::format("\"{}\" is not in the checkpoint", name));
        MUSTER_RETURN_IF_ERROR(checkpoint::ReadTensor(files->optimizer, *found, 0, kBytes,
                                                      reinterpret_cast<char*>(&step)));
      }
    }
    if (place.step) updates = std::max(updates.value_or(0), static_cast<int64_t>(step));
  }
  content.set_updates(updates.value_or(steps));
  return content;
}

absl::Status ReplicaState::Decode(const Layout& layout, const proto::ChunkContent& content,
                                  SlotsFile* slots) {
  callbacks_.WeightsChanged();
  const std::string what = fmt::format("chunk {} of shard {}", content.chunk(), content.shard());
  if (content.shard() < 0 || content.shard() >= static_cast<int>(layout.chunks.size()) ||
      content.chunk() < 0 ||
      content.chunk() >= static_cast<int>(layout.chunks[content.shard()].size()))
    return DataError(fmt::format("{} came, which does not exist", what));
  const Chunk& chunk = layout.chunks[content.shard()][content.chunk()];
  const size_t bytes = chunk.elements() * kBytes;
  const auto fits = [&](const std::string& piece) { return piece.size() == bytes; };
  if (!fits(content.parameters()) ||
      !std::all_of(content.slots().begin(), content.slots().end(), fits))
    return DataError(
        fmt::format("{} has {} bytes, not {}", what, content.parameters().size(), bytes));
  for (const Piece& piece : PiecesOf(layout, content.shard(), chunk)) {
    const Place& place = places_[piece.variable];
    std::memcpy(served_.tensors[piece.variable].data_ptr<float>() + piece.first,
                content.parameters().data() + piece.at * kBytes, piece.count * kBytes);
    if (static_cast<size_t>(content.slots_size()) != place.slots.size())
      return DataError(
          fmt::format("{} has {} slots, not {}", what, content.slots_size(), place.slots.size()));
    if (slots == nullptr) continue;
    for (size_t s = 0; s < place.slots.size(); ++s)
      Write(slots, place.slots[s], piece,
            content.slots(static_cast<int>(s)).data() + piece.at * kBytes);
    // The counts of a variable's chunks differ only by partly applied pushes of lost workers.
    if (place.step) slots->Count(*place.step, content.updates());
  }
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::Snapshot> ReplicaState::Take(const checkpoint::TrainingState& state) {
  checkpoint::TrainingState taken = state;
  taken.loss_scaler = InitialLoopState(job_, *replica_).loss_scaler;
  return SnapshotTaker::View(*replica_, taken);
}

void ReplicaState::Describe(StartReport* report) const {
  report->program =
      job_.program.is_string() ? job_.program.get<std::string>() : job_.program.dump();
  DescribeModels(*replica_, report);
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

}  // namespace muster::chief
