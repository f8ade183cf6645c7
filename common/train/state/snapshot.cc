#include "common/train/state/snapshot.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/embedding/embedding_state.h"
#include "common/train/host_memory.h"
#include "common/train/state/tied_slots.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::TensorSet;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

constexpr std::pair<at::ScalarType, DType> kTypes[] = {
    {at::kBool, DType::kBool},     {at::kByte, DType::kUInt8},        {at::kChar, DType::kInt8},
    {at::kShort, DType::kInt16},   {at::kInt, DType::kInt32},         {at::kLong, DType::kInt64},
    {at::kHalf, DType::kFloat16},  {at::kBFloat16, DType::kBFloat16}, {at::kFloat, DType::kFloat32},
    {at::kDouble, DType::kFloat64}};

std::optional<DType> TypeOf(const at::Tensor& tensor) {
  for (const auto& [scalar, type] : kTypes) {
    if (scalar == tensor.scalar_type()) return type;
  }
  return std::nullopt;
}
at::ScalarType ScalarTypeOf(DType type) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [type](const auto& pair) { return pair.second == type; })
      ->first;
}

std::string PrefixOf(const Replica& replica, const NamedModel& model) {
  return replica.models().size() == 1 ? "" : model.name + ".";
}

NamedTensors ModelTensors(const Replica& replica) {
  NamedTensors all;
  for (const NamedModel& model : replica.models()) {
    const std::string prefix = PrefixOf(replica, model);
    for (const auto& [name, tensor] : model.parameters) all.emplace_back(prefix + name, tensor);
    for (const auto& [name, tensor] : model.buffers) all.emplace_back(prefix + name, tensor);
  }
  return all;
}

NamedTensors OptimizerTensors(const Replica& replica) {
  NamedTensors all;
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    const std::vector<std::string>& slots = optimizer.rule->slot_names();
    for (size_t p = 0; p < optimizer.parameter_names.size(); ++p) {
      for (size_t s = 0; s < slots.size(); ++s) {
        all.emplace_back(fmt::format("{}.{}.{}", optimizer.name,
                                     optimizer.parameter_names[p].substr(skip), slots[s]),
                         optimizer.rule->slot(static_cast<int>(s))[p]);
      }
    }
  }
  return all;
}

absl::Status CheckTypes(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!TypeOf(tensor)) {
      return ProgramError(fmt::format("\"{}\" is of type {}, which a checkpoint cannot hold", name,
                                      c10::toString(tensor.scalar_type())));
    }
  }
  return absl::OkStatus();
}

// ---- Memory

constexpr size_t kAlignment = 64;

}  // namespace

class SnapshotTaker::Pool {
 public:
  // Returns a free block or a new one, or null if there is not enough memory. A block keeps the
  // pool alive.
  static std::shared_ptr<HostMemory> Get(const std::shared_ptr<Pool>& pool, size_t bytes,
                                         bool pinned) {
    std::unique_ptr<HostMemory> memory = pool->Reuse(bytes, pinned);
    if (memory == nullptr) memory = HostMemory::Make(bytes, pinned);
    if (memory == nullptr) return nullptr;
    return {memory.release(),
            [pool](HostMemory* back) { pool->Return(std::unique_ptr<HostMemory>(back)); }};
  }

 private:
  static constexpr size_t kKept = 2;  // One for the snapshot that is written, and one for the next.

  std::unique_ptr<HostMemory> Reuse(size_t bytes, bool pinned) {
    absl::MutexLock lock(&mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if ((*it)->size() != bytes || (*it)->wants_pinned() != pinned) continue;
      std::unique_ptr<HostMemory> memory = std::move(*it);
      free_.erase(it);
      return memory;
    }
    free_.clear();  // The size has changed. Blocks of the old size will not be needed again.
    return nullptr;
  }
  void Return(std::unique_ptr<HostMemory> memory) {
    absl::MutexLock lock(&mutex_);
    if (free_.size() < kKept) free_.push_back(std::move(memory));
  }

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<HostMemory>> free_ ABSL_GUARDED_BY(mutex_);
};

namespace {

// ---- Snapshot

size_t Aligned(size_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

checkpoint::TensorInfo InfoOf(const std::string& name, const at::Tensor& tensor) {
  return {name, *TypeOf(tensor), tensor.sizes().vec()};
}

// Adds the tensors to `set`, and their offsets in memory to `places`, from `offset` on. Sets
// `offset` to the end of the last tensor.
void BuildLayout(const NamedTensors& tensors, size_t* offset, TensorSet* set,
                 std::vector<size_t>* places) {
  for (const auto& [name, tensor] : tensors) {
    const checkpoint::Tensor& placed = set->tensors.emplace_back(InfoOf(name, tensor));
    places->push_back(*offset);
    *offset = Aligned(*offset + placed.bytes());
  }
}

void BuildLayout(const std::vector<checkpoint::TensorInfo>& tables, size_t* offset, TensorSet* set,
                 std::vector<size_t>* places) {
  for (const checkpoint::TensorInfo& info : tables) {
    checkpoint::Tensor& placed = set->tensors.emplace_back();
    static_cast<checkpoint::TensorInfo&>(placed) = info;
    places->push_back(*offset);
    *offset = Aligned(*offset + placed.bytes());
  }
}

struct Copy {
  char* to;
  const char* from;
  size_t bytes;
};

// Makes all copies with this thread's intra-op threads, because one thread does not saturate the
// memory bus.
void CopyAll(const std::vector<Copy>& copies) {
  constexpr size_t kChunk = 4 << 20;
  std::vector<Copy> chunks;
  for (Copy copy : copies) {
    for (; copy.bytes > kChunk; copy.to += kChunk, copy.from += kChunk, copy.bytes -= kChunk)
      chunks.push_back({copy.to, copy.from, kChunk});
    chunks.push_back(copy);
  }
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(chunks[i].to, chunks[i].from, chunks[i].bytes);
  });
}

void CopyOut(const NamedTensors& tensors, const TensorSet& set, bool cpu,
             std::vector<Copy>* copies) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor from = tensors[i].second.detach();
    const checkpoint::Tensor& to = set.tensors[i];
    if (from.numel() == 0) continue;
    if (cpu && from.is_contiguous()) {
      copies->push_back({const_cast<char*>(to.data),
                         static_cast<const char*>(from.const_data_ptr()), to.bytes()});
    } else {
      ViewOf(to).copy_(from, /*non_blocking=*/!cpu);
    }
  }
}

NamedTensors StackedTensors(const Replica& replica, const StackedBuffers& own) {
  NamedTensors all;
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  for (const auto& [name, stacked] : own) all.emplace_back(name.substr(skip), stacked);
  return all;
}

checkpoint::SavedState StateOf(const Replica& replica, const checkpoint::TrainingState& state) {
  checkpoint::SavedState saved{state};
  saved.frozen = replica.optimizer_set().ChangedFrozen();
  for (const NamedBuffer& buffer : replica.buffers())
    if (buffer.averaged && !buffer.mode) saved.averaged.push_back(buffer.name);
  return saved;
}

// Returns views of the tensors. Copies tensors that are not row-major.
TensorSet ViewOfAll(const NamedTensors& tensors) {
  TensorSet set;
  const auto held = std::make_shared<std::vector<at::Tensor>>();
  for (const auto& [name, tensor] : tensors) {
    held->push_back(tensor.detach().contiguous());
    set.tensors.emplace_back(InfoOf(name, tensor)).data =
        static_cast<const char*>(held->back().const_data_ptr());
  }
  set.memory = held;
  return set;
}

}  // namespace

at::Tensor ViewOf(const checkpoint::Tensor& tensor) {
  return at::from_blob(const_cast<char*>(tensor.data), tensor.shape,
                       at::TensorOptions().dtype(ScalarTypeOf(tensor.dtype)));
}

SnapshotTaker::SnapshotTaker() : pool_(std::make_shared<Pool>()) {}

absl::StatusOr<checkpoint::Snapshot> SnapshotTaker::Take(const Replica& replica,
                                                         const checkpoint::TrainingState& state,
                                                         const StackedBuffers& own) {
  const at::NoGradGuard no_grad;
  const NamedTensors model = ModelTensors(replica), stacked = StackedTensors(replica, own);
  NamedTensors optimizer = OptimizerTensors(replica);
  MUSTER_RETURN_IF_ERROR(CheckTypes(model));
  MUSTER_RETURN_IF_ERROR(CheckTypes(optimizer));
  std::erase_if(optimizer, [](const auto& slot) { return slot.second.is_meta(); });
  checkpoint::Snapshot snapshot;
  snapshot.state = StateOf(replica, state);
  size_t bytes = 0;
  std::vector<size_t> model_places, optimizer_places;
  BuildLayout(model, &bytes, &snapshot.model, &model_places);
  BuildLayout(optimizer, &bytes, &snapshot.optimizer, &optimizer_places);
  const TableSnapshot tables(replica);
  BuildLayout(tables.model(), &bytes, &snapshot.model, &model_places);
  BuildLayout(tables.optimizer(), &bytes, &snapshot.optimizer, &optimizer_places);
  std::vector<size_t> stacked_places;
  BuildLayout(stacked, &bytes, &snapshot.replica_buffers, &stacked_places);
  std::map<std::string, std::vector<size_t>> kept_places;
  for (const std::string& callback : replica.kept().callbacks())
    BuildLayout(replica.kept().Of(callback), &bytes, &snapshot.kept[callback],
                &kept_places[callback]);
  const bool cpu = replica.device().is_cpu();
  const auto memory = Pool::Get(pool_, std::max(bytes, kAlignment), !cpu);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("no memory for a copy of the state, {} bytes", bytes));
  }
  snapshot.model.memory = snapshot.optimizer.memory = snapshot.replica_buffers.memory = memory;
  std::vector<char*> model_data, optimizer_data;
  for (size_t i = 0; i < model_places.size(); ++i) {
    model_data.push_back(memory->data() + model_places[i]);
    snapshot.model.tensors[i].data = model_data.back();
  }
  for (size_t i = 0; i < optimizer_places.size(); ++i) {
    optimizer_data.push_back(memory->data() + optimizer_places[i]);
    snapshot.optimizer.tensors[i].data = optimizer_data.back();
  }
  for (size_t i = 0; i < stacked_places.size(); ++i)
    snapshot.replica_buffers.tensors[i].data = memory->data() + stacked_places[i];
  std::vector<Copy> copies;
  for (auto& [callback, set] : snapshot.kept) {
    set.memory = memory;
    for (size_t i = 0; i < set.tensors.size(); ++i)
      set.tensors[i].data = memory->data() + kept_places[callback][i];
    CopyOut(replica.kept().Of(callback), set, cpu, &copies);
  }
  CopyOut(stacked, snapshot.replica_buffers, /*cpu=*/true, &copies);
  CopyOut(model, snapshot.model, cpu, &copies);
  CopyOut(optimizer, snapshot.optimizer, cpu, &copies);
  CopyAll(copies);
  tables.CopyOut(std::span(model_data).subspan(model.size()),
                 std::span(optimizer_data).subspan(optimizer.size()));
  // Waits for the copies from the device, which run on its current stream.
  if (!cpu)
    c10::impl::VirtualGuardImpl(replica.device().type()).getStream(replica.device()).synchronize();
  return snapshot;
}

absl::StatusOr<checkpoint::Snapshot> SnapshotTaker::View(const Replica& replica,
                                                         const checkpoint::TrainingState& state) {
  const NamedTensors model = ModelTensors(replica);
  MUSTER_RETURN_IF_ERROR(CheckTypes(model));
  checkpoint::Snapshot snapshot;
  snapshot.state = StateOf(replica, state);
  snapshot.model = ViewOfAll(model);
  for (const std::string& callback : replica.kept().callbacks())
    snapshot.kept[callback] = ViewOfAll(replica.kept().Of(callback));
  return snapshot;
}

std::vector<checkpoint::TensorInfo> SlotInfos(const Replica& replica) {
  std::vector<checkpoint::TensorInfo> infos;
  for (const auto& [name, slot] : OptimizerTensors(replica)) infos.push_back(InfoOf(name, slot));
  return infos;
}

NamedTensors NamedParameters(const Replica& replica) {
  NamedTensors all;
  for (const NamedModel& model : replica.models()) {
    for (const auto& [name, parameter] : model.parameters)
      all.emplace_back(PrefixOf(replica, model) + name, parameter);
  }
  return all;
}

absl::Status CheckSavable(const Replica& replica) {
  MUSTER_RETURN_IF_ERROR(CheckTypes(ModelTensors(replica)));
  return CheckTypes(OptimizerTensors(replica));
}

// ---- Restore

namespace {

std::string Describe(DType type, at::IntArrayRef shape) {
  return fmt::format("{} [{}]", checkpoint::kDTypeNames[static_cast<int>(type)],
                     fmt::join(shape, ", "));
}

absl::Status DoesNotFit(const checkpoint::Snapshot& snapshot, const std::string& what) {
  return ConfigurationError(
      fmt::format("the checkpoint of step {} does not fit the program: {}; was the program "
                  "changed since?",
                  snapshot.state.step, what));
}

absl::StatusOr<TableRestore> FindTables(const checkpoint::Snapshot& snapshot,
                                        const Replica& replica, bool slots) {
  return TableRestore::Find(snapshot, replica, slots, [&snapshot](const std::string& what) {
    return DoesNotFit(snapshot, what);
  });
}

// Returns an error unless `set` has exactly `tensors` and those of `tables`. `set` may lack the
// tensors in `may_lack`.
absl::Status CheckFits(const checkpoint::Snapshot& snapshot, const TensorSet& set,
                       const NamedTensors& tensors, const TableRestore& tables,
                       const std::set<std::string>& may_lack = {}) {
  const auto refuse = [&snapshot](const std::string& what) { return DoesNotFit(snapshot, what); };
  std::map<std::string_view, const checkpoint::Tensor*> there;
  for (const checkpoint::Tensor& tensor : set.tensors)
    if (!tables.Has(tensor)) there[tensor.name] = &tensor;
  for (const auto& [name, tensor] : tensors) {
    const auto found = there.find(name);
    if (found == there.end() && may_lack.contains(name)) continue;
    if (found == there.end()) return refuse(fmt::format("\"{}\" is not in it", name));
    const std::optional<DType> type = TypeOf(tensor);
    const checkpoint::Tensor& saved = *found->second;
    if (!type || saved.dtype != *type || tensor.sizes() != at::IntArrayRef(saved.shape)) {
      return refuse(fmt::format(
          "\"{}\" is {} in it and {} in the program", name, Describe(saved.dtype, saved.shape),
          type ? Describe(*type, tensor.sizes()) : c10::toString(tensor.scalar_type())));
    }
    there.erase(found);
  }
  if (!there.empty())
    return refuse(fmt::format("\"{}\" is in it and not in the program", there.begin()->first));
  return absl::OkStatus();
}

// Copies the saved tensors to `tensors`. Skips a tensor without memory, whose values are in another
// process.
absl::Status CopyIn(const TensorSet& set, const NamedTensors& tensors) {
  std::map<std::string_view, const checkpoint::Tensor*> there;
  for (const checkpoint::Tensor& tensor : set.tensors) there[tensor.name] = &tensor;
  absl::Status read;
  const absl::Status restored = CatchProgramErrors("restoring the state", [&] {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : tensors) {
      const auto found = there.find(name);
      if (found == there.end() || tensor.numel() == 0 || tensor.is_meta()) continue;
      const checkpoint::Tensor& from = *found->second;
      const at::Tensor to = tensor.detach();
      if (from.data != nullptr) {
        to.copy_(ViewOf(from));
        continue;
      }
      const bool straight = to.is_cpu() && to.is_contiguous();
      const at::Tensor memory = straight ? to : at::empty(to.sizes(), to.scalar_type());
      read.Update(checkpoint::ReadTensor(set, from, 0, static_cast<int64_t>(from.bytes()),
                                         static_cast<char*>(memory.data_ptr())));
      if (!straight) to.copy_(memory);
    }
  });
  return restored.ok() ? read : restored;
}

// Returns the flags of Replica::Trainable as they were at the checkpoint. Parameters and buffers
// that the checkpoint does not mention have the replica's current flags.
std::vector<uint8_t> TrainableOf(const checkpoint::Snapshot& snapshot, const Replica& replica) {
  std::vector<uint8_t> flags = replica.Trainable();
  std::set<std::string_view> saved;
  for (const checkpoint::Tensor& tensor : snapshot.optimizer.tensors) saved.insert(tensor.name);
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  size_t at = 0;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    for (const std::string& name : optimizer.candidate_names) {
      uint8_t& flag = flags[at++];
      for (const std::string& slot : optimizer.rule->slot_names()) {
        if (saved.contains(fmt::format("{}.{}.{}", optimizer.name, name.substr(skip), slot)))
          flag |= OptimizerSet::kHasSlots;
      }
      if (!snapshot.state.frozen) continue;
      const auto& frozen = *snapshot.state.frozen;
      const bool is_frozen = std::find(frozen.begin(), frozen.end(), name) != frozen.end();
      flag = (flag & ~OptimizerSet::kRequiresGrad) | (is_frozen ? 0 : OptimizerSet::kRequiresGrad);
      if (!is_frozen) flag |= OptimizerSet::kHasSlots;
    }
  }
  const auto& averaged = snapshot.state.averaged;
  for (const NamedBuffer& buffer : replica.buffers()) {
    uint8_t& flag = flags[at++];
    if (!buffer.mode && std::find(averaged.begin(), averaged.end(), buffer.name) != averaged.end())
      flag = 1;
  }
  return flags;
}

// Drops the slots of parameters that build() freezes, because parameter servers keep no slots for
// them. Returns an error if such a parameter was trainable at the checkpoint.
absl::Status DropSlotsOfFrozen(const Replica& replica, checkpoint::Snapshot* snapshot) {
  const auto& frozen = snapshot->state.frozen;
  std::set<std::string> dropped;
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
      if (optimizer.place[c] >= 0) continue;
      const std::string& name = optimizer.candidate_names[c];
      if (frozen && std::find(frozen->begin(), frozen->end(), name) == frozen->end()) {
        return ConfigurationError(fmt::format(
            "\"{}\" is trained in the checkpoint of step {} and frozen by build(): parameter "
            "servers keep slots for what is trainable in build() only; leave it trainable there, "
            "and freeze it in the steps that do not train it",
            name, snapshot->state.step));
      }
      for (const std::string& slot : optimizer.rule->slot_names())
        dropped.insert(fmt::format("{}.{}.{}", optimizer.name, name.substr(skip), slot));
    }
  }
  const size_t left_aside =
      std::erase_if(snapshot->optimizer.tensors,
                    [&dropped](const auto& tensor) { return dropped.contains(tensor.name); });
  if (left_aside > 0) LogInfo("ignored {} slots of parameters that build() freezes", left_aside);
  return absl::OkStatus();
}

// Returns the names of the slots of frozen parameters. A checkpoint may lack them.
std::set<std::string> SlotsOfFrozen(const Replica& replica) {
  std::set<std::string> names;
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
      if (optimizer.candidates[c].requires_grad()) continue;
      for (const std::string& slot : optimizer.rule->slot_names())
        names.insert(fmt::format("{}.{}.{}", optimizer.name,
                                 optimizer.candidate_names[c].substr(skip), slot));
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<StackedBuffers> RestoreStacked(const checkpoint::Snapshot& snapshot,
                                              const Replica& replica) {
  StackedBuffers restored;
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  for (const NamedBuffer& buffer : replica.replica_buffers()) {
    // In a checkpoint from before the buffer was declared kPerReplica, the model has it once.
    const std::string name = buffer.name.substr(skip);
    const checkpoint::Tensor* stacked = snapshot.replica_buffers.Find(name);
    const checkpoint::Tensor* once = snapshot.model.Find(name);
    if (stacked == nullptr && once == nullptr)
      return DoesNotFit(snapshot, fmt::format("\"{}\" is not in it", name));
    const checkpoint::Tensor& saved = stacked != nullptr ? *stacked : *once;
    std::vector<int64_t> shape = saved.shape;
    if (stacked != nullptr && !shape.empty()) shape.erase(shape.begin());
    const bool empty = stacked != nullptr && (saved.shape.empty() || saved.shape[0] < 1);
    if (empty || ScalarTypeOf(saved.dtype) != buffer.tensor.scalar_type() ||
        buffer.tensor.sizes() != at::IntArrayRef(shape)) {
      return DoesNotFit(snapshot,
                        fmt::format("\"{}\" of a replica is {} in it and {} in the program", name,
                                    Describe(saved.dtype, shape),
                                    Describe(*TypeOf(buffer.tensor), buffer.tensor.sizes())));
    }
    const at::Tensor value = stacked != nullptr ? ViewOf(saved) : ViewOf(saved).unsqueeze(0);
    restored.emplace_back(buffer.name, value.clone());
  }
  return restored;
}

absl::Status RestoreModels(const checkpoint::Snapshot& snapshot, Replica* replica) {
  const NamedTensors model = ModelTensors(*replica);
  MUSTER_ASSIGN_OR_RETURN(const TableRestore tables,
                          FindTables(snapshot, *replica, /*slots=*/false));
  MUSTER_RETURN_IF_ERROR(CheckFits(snapshot, snapshot.model, model, tables));
  MUSTER_RETURN_IF_ERROR(tables.Apply(snapshot.state.step, replica));
  return CopyIn(snapshot.model, model);
}

namespace {
// Removes the records of weights that callbacks keep if the snapshot does not have the weights: an
// export has none. Otherwise the current weights would be used in their place.
void ForgetMissing(const checkpoint::Snapshot& snapshot, checkpoint::Extras* extras) {
  if (!extras->callbacks) return;
  std::erase_if(extras->callbacks->kept, [&](const auto& kept) {
    const auto& [callback, step] = kept;
    if (snapshot.kept.contains(callback)) return false;
    LogWarning(
        "the weights after step {}, which callback \"{}\" remembers, are not in the state from "
        "which training continues: the callback has no weights until it remembers others",
        step, callback);
    return true;
  });
}

absl::Status RestoreTrainable(const checkpoint::Snapshot& snapshot, const Job& job,
                              Replica* replica, LoopState* state);
}  // namespace

absl::Status RestoreReplica(const checkpoint::Snapshot& read, const Job& job, Replica* replica,
                            LoopState* state) {
  checkpoint::Snapshot snapshot = read;
  snapshot.optimizer = UntieSlots(read.optimizer, *replica);
  const std::vector<uint8_t> trainable = replica->Trainable();
  if (job.strategy == StrategyKind::kParameterServer) {
    MUSTER_RETURN_IF_ERROR(DropSlotsOfFrozen(*replica, &snapshot));
  } else {
    MUSTER_RETURN_IF_ERROR(replica->SetTrainable(TrainableOf(snapshot, *replica)));
  }
  const absl::Status restored = RestoreTrainable(snapshot, job, replica, state);
  if (!restored.ok()) MUSTER_RETURN_IF_ERROR(replica->SetTrainable(trainable));
  return restored;
}

namespace {

// Checks that the weights that callbacks keep fit the replica.
absl::Status CheckKept(const checkpoint::Snapshot& snapshot, const Replica& replica) {
  for (const auto& [callback, set] : snapshot.kept) {
    MUSTER_RETURN_IF_ERROR(CheckFits(snapshot, set, replica.kept().own(), TableRestore()));
  }
  return absl::OkStatus();
}

absl::Status RestoreTrainable(const checkpoint::Snapshot& snapshot, const Job& job,
                              Replica* replica, LoopState* state) {
  const checkpoint::SavedState& saved = snapshot.state;
  const NamedTensors model = ModelTensors(*replica), optimizer = OptimizerTensors(*replica);
  MUSTER_ASSIGN_OR_RETURN(const TableRestore tables,
                          FindTables(snapshot, *replica, /*slots=*/true));
  MUSTER_RETURN_IF_ERROR(CheckFits(snapshot, snapshot.model, model, tables));
  MUSTER_RETURN_IF_ERROR(
      CheckFits(snapshot, snapshot.optimizer, optimizer, tables, SlotsOfFrozen(*replica)));
  const LoopState initial = InitialLoopState(job, *replica);
  // At the start of an epoch there are no sums, so the program may have other metrics.
  const bool other_metrics = saved.epoch_metric_sums.size() != initial.epoch_metric_sums.size();
  if (other_metrics && saved.epoch_examples > 0) {
    return ConfigurationError(fmt::format(
        "the checkpoint of step {} lies within an epoch and was written with other metrics: its "
        "program has changed since",
        saved.step));
  }
  MUSTER_RETURN_IF_ERROR(CheckKept(snapshot, *replica));
  MUSTER_RETURN_IF_ERROR(CopyIn(snapshot.model, model));
  MUSTER_RETURN_IF_ERROR(CopyIn(snapshot.optimizer, optimizer));
  MUSTER_RETURN_IF_ERROR(tables.Apply(saved.step, replica));
  for (const auto& [callback, set] : snapshot.kept) {
    replica->kept().Keep(callback);
    MUSTER_RETURN_IF_ERROR(CopyIn(set, std::as_const(*replica).kept().Of(callback)));
  }
  LoopState next{saved};
  if (other_metrics) next.epoch_metric_sums = initial.epoch_metric_sums;
  ForgetMissing(snapshot, &next.extras);
  next.saved_step = saved.step;
  if (saved.extras.callbacks && saved.extras.callbacks->ended && !saved.validation_due &&
      !saved.test_due)
    next.end_saved_step = saved.step;
  // The loss scale belongs to the precision, which the job may have changed.
  const std::string precision(kPrecisionNames[static_cast<int>(job.precision)]);
  const bool same = !saved.job.is_object() || saved.job.value("precision", precision) == precision;
  if (!same || saved.loss_scaler.size() != initial.loss_scaler.size())
    next.loss_scaler = initial.loss_scaler;
  if (!same) next.extras.skipped.in_a_row = 0;
  *state = std::move(next);
  return absl::OkStatus();
}

}  // namespace

}  // namespace muster
