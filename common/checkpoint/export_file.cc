#include "common/checkpoint/export_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "common/checkpoint/files/checksummed_file.h"
#include "muster/version.h"

namespace muster::checkpoint {
namespace {

constexpr char kOptimizer[] = "optimizer/", kReplicaBuffers[] = "replica_buffers/";
// The metadata key that identifies an export.
constexpr char kState[] = "state";

bool IsModels(const std::string& name) {
  return !name.starts_with(kOptimizer) && !name.starts_with(kReplicaBuffers);
}

void Add(const TensorSet& set, const std::string& prefix, TensorSet* all) {
  for (Tensor tensor : set.tensors) {
    tensor.name = prefix + tensor.name;
    all->tensors.push_back(std::move(tensor));
  }
  // At most one of the sets has a file, because models are in memory.
  if (set.file != nullptr) all->file = set.file;
}

// Moves the tensors with names that begin with `prefix` from `*all` to the result.
TensorSet Split(const std::string& prefix, TensorSet* all) {
  TensorSet part;
  part.memory = all->memory;
  for (const Tensor& tensor : all->tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    part.tensors.push_back(tensor);
    part.tensors.back().name = tensor.name.substr(prefix.size());
  }
  std::erase_if(all->tensors, [&](const Tensor& t) { return t.name.starts_with(prefix); });
  return part;
}

// Copies unaligned tensors to aligned memory. Files of other programs may have tensors that are not
// aligned to their type.
void Align(TensorSet* set) {
  const auto aligned = [](const Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.data) % kDTypeBytes[static_cast<int>(tensor.dtype)] ==
           0;
  };
  if (std::all_of(set->tensors.begin(), set->tensors.end(), aligned)) return;
  constexpr size_t kWidest = 8;
  size_t bytes = 0;
  const auto place = [&bytes](const Tensor& tensor) {
    const size_t begin = bytes;
    bytes += (tensor.bytes() + kWidest - 1) / kWidest * kWidest;
    return begin;
  };
  for (const Tensor& tensor : set->tensors) place(tensor);
  const auto memory = std::make_shared<std::vector<uint64_t>>(bytes / kWidest);
  bytes = 0;
  for (Tensor& tensor : set->tensors) {
    char* const to = reinterpret_cast<char*>(memory->data()) + place(tensor);
    std::memcpy(to, tensor.data, tensor.bytes());
    tensor.data = to;
  }
  set->memory = memory;
}

Metadata MetadataOf(const SavedState& state, bool slots) {
  Metadata metadata;
  for (const char* name : {"muster", "libtorch"}) {
    const auto version = state.versions.find(name);
    if (version != state.versions.end()) metadata[name] = version->second;
  }
  metadata.try_emplace("muster", MUSTER_VERSION);
  for (const char* key : {"program", "program_args"})
    metadata[key] = Dump(state.job.is_object() ? state.job.value(key, Json()) : Json());
  metadata["step"] = std::to_string(state.step);
  metadata["slots"] = slots ? "true" : "false";
  metadata[kState] = Dump(ToJson(state));
  return metadata;
}

}  // namespace

bool NamesExport(const std::string& path) { return path.ends_with(".safetensors"); }

bool IsExport(const Metadata& metadata) {
  return metadata.contains("muster") && metadata.contains(kState);
}

void RetainModels(TensorSet* set) {
  std::erase_if(set->tensors, [](const Tensor& tensor) { return !IsModels(tensor.name); });
}

absl::Status WriteTensors(FileSystem& files, const TensorSet& set, const Metadata& metadata,
                          const std::string& path) {
  const std::string unfinished = path + ".tmp";
  const auto write = [&]() -> absl::Status {
    MUSTER_ASSIGN_OR_RETURN(auto file, files.Create(unfinished));
    ChecksummedFile out(std::move(file));
    MUSTER_RETURN_IF_ERROR(WriteSafetensors(set, out, metadata));
    MUSTER_RETURN_IF_ERROR(out.Finish());
    return files.Rename(unfinished, path);
  };
  absl::Status written = write();
  if (!written.ok()) (void)files.Remove(unfinished);
  return written.ok() ? files.SyncDirectory(ParentPath(path)) : written;
}

absl::Status WriteExport(FileSystem& files, const Snapshot& snapshot, bool slots,
                         const std::string& path) {
  TensorSet all = snapshot.model, optimizer = snapshot.optimizer;
  MUSTER_RETURN_IF_ERROR(JoinRows(snapshot.tables, &all, &optimizer));
  for (const Tensor& tensor : all.tensors) {
    if (IsModels(tensor.name)) continue;
    return absl::InvalidArgumentError(
        fmt::format("the models have a tensor {}, and names that begin with \"{}\" or \"{}\" are "
                    "the optimizer's in such a file: rename it",
                    Dump(Json(tensor.name)), kOptimizer, kReplicaBuffers));
  }
  if (slots) {
    Add(optimizer, kOptimizer, &all);
    Add(snapshot.replica_buffers, kReplicaBuffers, &all);
  }
  return WriteTensors(files, all, MetadataOf(snapshot.state, slots), path);
}

absl::StatusOr<Export> ReadExport(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  Metadata metadata;
  uint32_t crc = 0;
  absl::StatusOr<TensorSet> set = ReadSafetensors(*file, &crc, nullptr, &metadata);
  if (absl::IsDataLoss(set.status())) return Annotate(set.status(), path + ": ");
  MUSTER_RETURN_IF_ERROR(set.status());
  Export read;
  Snapshot& snapshot = read.snapshot;
  snapshot.model = *std::move(set);
  if (!IsExport(metadata)) {
    Align(&snapshot.model);
    return read;
  }
  read.ours = true;
  read.slots = metadata["slots"] == "true";
  snapshot.optimizer = Split(kOptimizer, &snapshot.model);
  snapshot.replica_buffers = Split(kReplicaBuffers, &snapshot.model);
  const absl::StatusOr<Json> json = ParseJson(metadata[kState], "it");
  absl::StatusOr<SavedState> state =
      json.ok() ? SavedStateFromJson(*json) : DataError(std::string(Message(json.status())));
  if (!state.ok()) {
    return DataError(
        fmt::format("{}: \"{}\" in its metadata: {}", path, kState, Message(state.status())));
  }
  snapshot.state = *std::move(state);
  return read;
}

}  // namespace muster::checkpoint
