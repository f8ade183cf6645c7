#include "evaluator/fetched_checkpoint.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/base/files/crc32c.h"
#include "common/checkpoint/manifest.h"

namespace muster::evaluator {
namespace {

using checkpoint::kManifestFile;

bool MatchesAnnouncement(const std::string& manifest, const proto::Announcement& announced) {
  return fmt::format("{:08x}", Crc32c(manifest)) == announced.manifest_checksum();
}

absl::Status FetchFile(checkpoint::FileSystem& files, ChiefLink& link, int64_t step,
                       const std::string& name, const std::string& folder) {
  MUSTER_ASSIGN_OR_RETURN(auto file, files.Create(folder + "/" + name));
  MUSTER_RETURN_IF_ERROR(
      link.Fetch(step, name, [&](const std::string& data) { return file->Append(data); }));
  return file->Close();
}

absl::Status FetchAll(checkpoint::FileSystem& files, ChiefLink& link,
                      const proto::Announcement& announced, const std::string& folder) {
  MUSTER_RETURN_IF_ERROR(FetchFile(files, link, announced.step(), kManifestFile, folder));
  MUSTER_ASSIGN_OR_RETURN(const std::string manifest,
                          ReadFile(files, fmt::format("{}/{}", folder, kManifestFile)));
  if (!MatchesAnnouncement(manifest, announced))
    return DataError(fmt::format("{} has changed since it was announced", announced.name()));
  MUSTER_ASSIGN_OR_RETURN(const checkpoint::Manifest names, checkpoint::ParseManifest(manifest));
  for (const auto& [name, file] : names.files)
    MUSTER_RETURN_IF_ERROR(FetchFile(files, link, announced.step(), name, folder));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FetchedCheckpoint> FetchedCheckpoint::Get(checkpoint::FileSystem& files,
                                                         ChiefLink& link,
                                                         const proto::Announcement& announced) {
  FetchedCheckpoint checkpoint;
  const auto manifest = ReadFile(files, fmt::format("{}/{}", announced.path(), kManifestFile));
  if (manifest.ok() && MatchesAnnouncement(*manifest, announced)) {
    checkpoint.path_ = announced.path();
    return checkpoint;
  }
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error) / "muster-evaluator-XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr)
    return ConfigurationError(
        fmt::format("cannot make a temporary folder for checkpoints ({}): {}; set TMPDIR to a "
                    "folder with space for one",
                    folder, error ? error.message() : std::strerror(errno)));
  checkpoint.temporary_ = folder;
  checkpoint.path_ = fmt::format("{}/{}", folder, announced.name());
  MUSTER_RETURN_IF_ERROR(files.MakeDirectory(checkpoint.path_));
  MUSTER_RETURN_IF_ERROR(FetchAll(files, link, announced, checkpoint.path_));
  return checkpoint;
}

FetchedCheckpoint::FetchedCheckpoint(FetchedCheckpoint&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, "")) {}

FetchedCheckpoint::~FetchedCheckpoint() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

}  // namespace muster::evaluator
