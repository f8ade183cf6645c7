#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "common/base/files/crc32c.h"
#include "common/checkpoint/files/checksummed_file.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/state/fields.h"
#include "common/checkpoint/store.h"

namespace muster::checkpoint {
namespace {

// Returns whether an error means that the checkpoint is damaged. A file that the disk cannot read
// is damaged. With missing permission or memory, the checkpoint may be complete.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsOutOfRange(status) ||
         absl::IsInternal(status);
}

absl::Status Damaged(const std::string& path, const absl::Status& why) {
  if (why.ok()) return why;
  if (!IsDamage(why)) {
    return Annotate(why, fmt::format("cannot read checkpoint {}: ", BaseName(path)));
  }
  return DataError(fmt::format("checkpoint {} is damaged: {}", BaseName(path), Message(why)));
}

absl::Status OfFile(const std::string& name, const absl::Status& why) {
  // Errors of the file system already name the file.
  return absl::IsDataLoss(why) ? Annotate(why, name + ": ") : why;
}

// Opens one of a checkpoint's files and checks its size against the manifest.
absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(FileSystem& files, const std::string& path,
                                                       const std::string& name,
                                                       const Manifest& manifest) {
  auto file = files.Open(JoinPath(path, name));
  if (absl::IsNotFound(file.status())) return DataError(fmt::format("{} is missing", name));
  if (!file.ok()) return file;
  const int64_t is = (*file)->size(), must = manifest.files.at(name).bytes;
  if (is == must) return file;
  return DataError(fmt::format("{} is {} bytes too {} ({} of {})", name,
                               is < must ? must - is : is - must, is < must ? "short" : "long", is,
                               must));
}

absl::Status CheckCrc(const std::string& name, uint32_t crc, const Manifest& manifest) {
  const uint32_t must = manifest.files.at(name).crc32c;
  if (crc == must) return absl::OkStatus();
  return DataError(fmt::format("{} does not match its checksum (CRC-32C {:08x}, must be {:08x})",
                               name, crc, must));
}

absl::StatusOr<Manifest> ReadManifest(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(files, JoinPath(path, kManifestFile));
  if (absl::IsNotFound(text.status()))
    return DataError(fmt::format("{} is missing", kManifestFile));
  if (!text.ok()) return text.status();
  absl::StatusOr<Manifest> manifest = ParseManifest(*text);
  if (!manifest.ok()) return OfFile(kManifestFile, manifest.status());
  // A folder with another name is a copy that a user has made.
  const int64_t step = StepOfName(BaseName(path));
  if (step >= 0 && step != manifest->step) {
    return DataError(fmt::format("{} is of step {}", kManifestFile, manifest->step));
  }
  return manifest;
}

absl::StatusOr<SavedState> ReadState(FileSystem& files, const std::string& path,
                                     const Manifest& manifest) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, OpenFile(files, path, kStateFile, manifest));
  std::string text(file->size(), '\0');
  MUSTER_RETURN_IF_ERROR(file->ReadAt(0, text.size(), text.data()));
  MUSTER_RETURN_IF_ERROR(CheckCrc(kStateFile, Crc32c(text), manifest));
  const absl::StatusOr<Json> json = ParseJson(text, "it");
  if (!json.ok()) return DataError(fmt::format("{}: {}", kStateFile, Message(json.status())));
  absl::StatusOr<SavedState> state = SavedStateFromJson(*json);
  if (!state.ok()) return OfFile(kStateFile, state.status());
  if (state->step != manifest.step) {
    return DataError(fmt::format("{} is of step {}, {} of step {}", kStateFile, state->step,
                                 kManifestFile, manifest.step));
  }
  return state;
}

absl::StatusOr<TensorSet> ReadTensors(FileSystem& files, const std::string& path,
                                      const std::string& name, const Manifest& manifest) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, OpenFile(files, path, name, manifest));
  uint32_t crc = 0;
  absl::StatusOr<TensorSet> set = ReadSafetensors(*file, &crc);
  if (!set.ok()) return OfFile(name, set.status());
  MUSTER_RETURN_IF_ERROR(CheckCrc(name, crc, manifest));
  return set;
}

// Checks every byte of a file against its manifest. Returns Cancelled once `later` returns true.
absl::Status VerifyFile(const ReadableFile& file, const std::string& name, const Manifest& manifest,
                        const std::function<bool()>& later = nullptr) {
  MUSTER_ASSIGN_OR_RETURN(const uint32_t crc, ChecksumOf(file, later));
  return CheckCrc(name, crc, manifest);
}

// A file that is verified when its first tensor is read. If the file is damaged, every read returns
// that error. Reads of scalars do not verify, because a start reads them to check whether the state
// fits.
class VerifiedLater final : public RowSource {
 public:
  VerifiedLater(std::shared_ptr<const RowSource> rows, std::function<absl::Status()> verify)
      : rows_(std::move(rows)), verify_(std::move(verify)) {}
  const std::vector<TensorInfo>& tensors() const override { return rows_->tensors(); }
  absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const override {
    if (!tensors()[tensor].shape.empty()) {
      absl::call_once(once_, [this] { verified_ = verify_(); });
      MUSTER_RETURN_IF_ERROR(verified_);
    }
    return rows_->ReadBytes(tensor, begin, bytes, out);
  }

 private:
  const std::shared_ptr<const RowSource> rows_;
  const std::function<absl::Status()> verify_;
  mutable absl::once_flag once_;
  mutable absl::Status verified_;
};

// Opens a file to read its tensors later, piece by piece.
absl::StatusOr<std::shared_ptr<const RowSource>> OpenVerified(FileSystem& files,
                                                              const std::string& path,
                                                              const std::string& name,
                                                              const Manifest& manifest,
                                                              const Reading& reading) {
  MUSTER_ASSIGN_OR_RETURN(auto file, OpenFile(files, path, name, manifest));
  const absl::Status verified = VerifyFile(*file, name, manifest, reading.check_later);
  if (!verified.ok() && !absl::IsCancelled(verified)) return verified;
  auto open = OpenRows(std::move(file));
  if (!open.ok()) return OfFile(name, open.status());
  if (verified.ok()) return open;
  MUSTER_ASSIGN_OR_RETURN(file, OpenFile(files, path, name, manifest));
  return std::make_shared<VerifiedLater>(
      *std::move(open),
      [path, name, manifest, file = std::shared_ptr<ReadableFile>(std::move(file))] {
        return Damaged(path, VerifyFile(*file, name, manifest));
      });
}

absl::StatusOr<Snapshot> ReadWhole(FileSystem& files, const std::string& path,
                                   const Reading& reading) {
  MUSTER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(files, path));
  Snapshot snapshot;
  MUSTER_ASSIGN_OR_RETURN(snapshot.state, ReadState(files, path, manifest));
  for (const auto& [name, set] :
       {std::pair(kModelFile, &snapshot.model), std::pair(kOptimizerFile, &snapshot.optimizer)}) {
    if (reading.bytes == Bytes::kRead) {
      MUSTER_ASSIGN_OR_RETURN(*set, ReadTensors(files, path, name, manifest));
    } else {
      MUSTER_ASSIGN_OR_RETURN(auto file, OpenVerified(files, path, name, manifest, reading));
      *set = TensorsOf(std::move(file));
    }
  }
  if (manifest.files.contains(kReplicaBuffersFile)) {
    MUSTER_ASSIGN_OR_RETURN(snapshot.replica_buffers,
                            ReadTensors(files, path, kReplicaBuffersFile, manifest));
  }
  for (const auto& [name, file] : manifest.files) {
    const std::string callback = CallbackOfFile(name);
    if (callback.empty()) continue;
    MUSTER_ASSIGN_OR_RETURN(snapshot.kept[callback], ReadTensors(files, path, name, manifest));
  }
  for (const auto& [name, expected] : manifest.files) {
    if (!IsTablesFile(name)) continue;
    MUSTER_ASSIGN_OR_RETURN(snapshot.tables.emplace_back(),
                            OpenVerified(files, path, name, manifest, reading));
  }
  return snapshot;
}

absl::Status Health(FileSystem& files, const std::string& path, bool verify, CheckpointInfo* info) {
  MUSTER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(files, path));
  info->step = manifest.step;
  info->bytes = manifest.bytes();
  for (const auto& [name, expected] : manifest.files) {
    MUSTER_ASSIGN_OR_RETURN(const auto file, OpenFile(files, path, name, manifest));
    if (!verify) continue;
    MUSTER_RETURN_IF_ERROR(VerifyFile(*file, name, manifest));
    if (name == kStateFile) {
      MUSTER_RETURN_IF_ERROR(ReadState(files, path, manifest).status());
    } else {
      MUSTER_RETURN_IF_ERROR(OfFile(name, ReadSafetensorsHeader(*file).status()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Steps(FileSystem& files, const std::string& directory) {
  std::vector<int64_t> steps;
  const auto names = files.List(directory);
  if (absl::IsNotFound(names.status())) return steps;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (const int64_t step = StepOfName(name); step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Returns whether the owner has deleted the checkpoint after it was listed. It then does not count
// as damaged.
bool IsGone(FileSystem& files, const std::string& path) {
  const absl::StatusOr<bool> exists = files.Exists(path);
  return exists.ok() && !*exists;
}

absl::StatusOr<std::optional<Snapshot>> NewestOf(FileSystem& files, const std::string& directory,
                                                 std::vector<std::string>* damaged,
                                                 const Reading& reading) {
  // The owner may publish and delete checkpoints during the read. If the checkpoint was deleted,
  // the loop lists them again. The loop ends, because each new list begins with a newer checkpoint.
  while (true) {
    damaged->clear();
    bool gone = false;
    MUSTER_ASSIGN_OR_RETURN(std::vector<int64_t> steps, Steps(files, directory));
    for (; !steps.empty() && !gone; steps.pop_back()) {
      const std::string path = JoinPath(directory, CheckpointName(steps.back()));
      absl::StatusOr<Snapshot> snapshot = ReadCheckpoint(files, path, reading);
      if (snapshot.ok()) return std::optional<Snapshot>(*std::move(snapshot));
      gone = IsGone(files, path);
      if (!gone && !absl::IsDataLoss(snapshot.status())) return snapshot.status();
      if (!gone) damaged->emplace_back(Message(snapshot.status()));
    }
    if (gone) continue;
    if (damaged->empty()) return std::optional<Snapshot>();
    return DataError(fmt::format(
        "no checkpoint in {} can be read: {}{}", directory, damaged->front(),
        damaged->size() == 1 ? "" : fmt::format(", and {} older likewise", damaged->size() - 1)));
  }
}

absl::StatusOr<bool> HoldsAny(FileSystem& files, const std::string& path,
                              std::initializer_list<const char*> names) {
  for (const char* name : names) {
    MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(JoinPath(path, name)));
    if (exists) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::optional<Place>> FindCheckpoints(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(path));
  if (!exists) return std::optional<Place>();
  MUSTER_ASSIGN_OR_RETURN(
      const bool single,
      HoldsAny(files, path, {kManifestFile, kStateFile, kModelFile, kOptimizerFile}));
  if (single || StepOfName(BaseName(path)) >= 0) return Place{path, true};
  MUSTER_ASSIGN_OR_RETURN(const bool model_dir, HoldsAny(files, path, {"checkpoints"}));
  if (model_dir) return Place{JoinPath(path, "checkpoints"), false};
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps(files, path));
  MUSTER_ASSIGN_OR_RETURN(const bool folder, HoldsAny(files, path, {"latest", ".staging"}));
  if (!steps.empty() || folder) return Place{path, false};
  return std::optional<Place>();
}

CheckpointInfo InspectCheckpoint(FileSystem& files, const std::string& path, bool verify) {
  CheckpointInfo info;
  info.name = BaseName(path);
  info.path = path;
  info.step = std::max<int64_t>(0, StepOfName(info.name));
  info.health = Damaged(path, Health(files, path, verify, &info));
  return info;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& files,
                                                            const std::string& directory,
                                                            bool verify) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps(files, directory));
  std::vector<CheckpointInfo> infos;
  for (const int64_t step : steps) {
    CheckpointInfo info =
        InspectCheckpoint(files, JoinPath(directory, CheckpointName(step)), verify);
    if (info.health.ok() || !IsGone(files, info.path)) infos.push_back(std::move(info));
  }
  return infos;
}

absl::StatusOr<Snapshot> ReadCheckpoint(FileSystem& files, const std::string& path,
                                        const Reading& reading) {
  absl::StatusOr<Snapshot> snapshot = ReadWhole(files, path, reading);
  if (!snapshot.ok()) return Damaged(path, snapshot.status());
  return snapshot;
}

absl::StatusOr<Contents> ReadContents(FileSystem& files, const std::string& path) {
  const auto read = [&]() -> absl::StatusOr<Contents> {
    MUSTER_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(files, path));
    Contents contents;
    MUSTER_ASSIGN_OR_RETURN(contents.state, ReadState(files, path, manifest));
    std::vector<std::pair<std::string, std::vector<TensorInfo>*>> wanted = {
        {kModelFile, &contents.model}, {kOptimizerFile, &contents.optimizer}};
    if (manifest.files.contains(kReplicaBuffersFile))
      wanted.emplace_back(kReplicaBuffersFile, &contents.replica_buffers);
    for (const auto& [name, file] : manifest.files) {
      const std::string callback = CallbackOfFile(name);
      if (!callback.empty()) wanted.emplace_back(name, &contents.kept[callback]);
      if (IsTablesFile(name)) wanted.emplace_back(name, &contents.tables[name]);
    }
    for (const auto& [name, out] : wanted) {
      MUSTER_ASSIGN_OR_RETURN(const auto file, OpenFile(files, path, name, manifest));
      const absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(*file);
      if (!header.ok()) return OfFile(name, header.status());
      out->assign(header->tensors.begin(), header->tensors.end());
    }
    return contents;
  };
  absl::StatusOr<Contents> contents = read();
  if (!contents.ok()) return Damaged(path, contents.status());
  return contents;
}

absl::StatusOr<std::optional<Snapshot>> ReadNewest(FileSystem& files, const std::string& path,
                                                   std::vector<std::string>* damaged,
                                                   const Reading& reading) {
  damaged->clear();
  MUSTER_ASSIGN_OR_RETURN(const std::optional<Place> place, FindCheckpoints(files, path));
  if (!place) return std::optional<Snapshot>();
  if (!place->single) return NewestOf(files, place->path, damaged, reading);
  absl::StatusOr<Snapshot> snapshot = ReadCheckpoint(files, place->path, reading);
  if (!snapshot.ok()) return snapshot.status();
  return std::optional<Snapshot>(*std::move(snapshot));
}

std::optional<int64_t> ReadLatest(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadFile(files, JoinPath(directory, "latest"));
  if (!text.ok()) return std::nullopt;
  const int64_t step = StepOfName(text->substr(0, text->find('\n')));
  return step < 0 ? std::nullopt : std::optional(step);
}

std::optional<BestMark> ReadBest(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadFile(files, JoinPath(directory, "best"));
  if (!text.ok()) return std::nullopt;
  const size_t line = text->find('\n');
  BestMark best;
  best.step = StepOfName(text->substr(0, line));
  if (best.step < 0 || line == std::string::npos) return std::nullopt;
  const absl::StatusOr<Json> json = ParseJson(std::string_view(*text).substr(line + 1), "it");
  if (!json.ok()) return std::nullopt;
  const absl::Status status =
      Fields(*json).Read("metric", &best.metric).Read("value", &best.value).Finish();
  return status.ok() ? std::optional(best) : std::nullopt;
}

}  // namespace muster::checkpoint
