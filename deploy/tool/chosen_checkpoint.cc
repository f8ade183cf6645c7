#include "deploy/tool/chosen_checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "common/base/logging.h"
#include "common/checkpoint/export_file.h"
#include "common/checkpoint/store.h"

namespace muster {
namespace {

using checkpoint::FileSystem;

constexpr char kBest[] = "best", kLatest[] = "latest";

// Returns a ConfigurationError for a checkpoint that cannot be read, unless it is damaged.
absl::Status AsMistake(const absl::Status& status) {
  return status.ok() || absl::IsDataLoss(status) ? status : ConfigurationError(Message(status));
}

absl::StatusOr<ChosenCheckpoint> ReadFileOfTensors(FileSystem& files, const std::string& path) {
  absl::StatusOr<checkpoint::Export> read = checkpoint::ReadExport(files, path);
  if (absl::IsNotFound(read.status()))
    return ConfigurationError(fmt::format("{} is not there", path));
  if (!read.ok()) return AsMistake(read.status());
  return ChosenCheckpoint{path, std::move(read->snapshot), read->slots};
}

absl::StatusOr<ChosenCheckpoint> ReadBestOf(FileSystem& files, const std::string& folder) {
  const std::optional<checkpoint::BestMark> best = checkpoint::ReadBest(files, folder);
  if (!best) {
    return ConfigurationError(fmt::format(
        "{} has no best checkpoint: only a run with a validation split, or an evaluator, has one; "
        "--checkpoint latest is its newest",
        folder));
  }
  ChosenCheckpoint chosen;
  chosen.path = checkpoint::JoinPath(folder, checkpoint::CheckpointName(best->step));
  auto snapshot = checkpoint::ReadCheckpoint(files, chosen.path);
  if (!snapshot.ok()) return AsMistake(snapshot.status());
  chosen.snapshot = *std::move(snapshot);
  return chosen;
}

absl::StatusOr<ChosenCheckpoint> ReadNewestOf(FileSystem& files, const std::string& path) {
  const auto place = checkpoint::FindCheckpoints(files, path);
  if (!place.ok()) return AsMistake(place.status());
  const auto nothing = [&] {
    const auto there = files.Exists(path);
    return ConfigurationError(
        there.ok() && *there
            ? fmt::format("{} holds no checkpoint: name a model_dir, its checkpoints folder, one "
                          "checkpoint, or a safetensors file",
                          path)
            : fmt::format("{} is not there", path));
  };
  if (!*place) return nothing();
  std::vector<std::string> damaged;
  auto snapshot = checkpoint::ReadNewest(files, path, &damaged);
  for (const std::string& sentence : damaged) LogWarning("{}", sentence);
  if (!snapshot.ok()) return AsMistake(snapshot.status());
  if (!*snapshot) return nothing();
  ChosenCheckpoint chosen;
  chosen.snapshot = **std::move(snapshot);
  chosen.path = (*place)->single
                    ? (*place)->path
                    : checkpoint::JoinPath((*place)->path,
                                           checkpoint::CheckpointName(chosen.snapshot.state.step));
  return chosen;
}

}  // namespace

absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const std::string& wanted,
                                                  const std::string& model_dir) {
  FileSystem& files = checkpoint::PosixFileSystem();
  if (checkpoint::NamesExport(wanted)) return ReadFileOfTensors(files, wanted);
  const std::string word = wanted.empty() ? kLatest : checkpoint::BaseName(wanted);
  const bool alone = wanted.empty() || wanted == word;
  std::error_code error;
  const bool folder_of_that_name = !alone && std::filesystem::is_directory(wanted, error);
  if ((word != kBest && word != kLatest) || folder_of_that_name) return ReadNewestOf(files, wanted);
  if (alone && model_dir.empty()) {
    return ConfigurationError(fmt::format(
        "no job names the model_dir whose {} checkpoint is meant: set model_dir in the job, or "
        "name a checkpoint with --checkpoint DIR or FILE.safetensors",
        word));
  }
  const std::string folder = alone ? model_dir : checkpoint::ParentPath(wanted);
  if (word == kLatest) return ReadNewestOf(files, folder);
  const auto place = checkpoint::FindCheckpoints(files, folder);
  if (!place.ok()) return AsMistake(place.status());
  if (!*place) return ReadNewestOf(files, folder);  // The error names the missing file.
  return ReadBestOf(files, (*place)->path);
}

}  // namespace muster
