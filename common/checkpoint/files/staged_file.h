// The implementation of StagedFile (checkpoint.h) that Store::StageFile (store.h) returns. Internal
// to common/checkpoint.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/files/checksummed_file.h"
#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/manifest.h"

namespace muster::checkpoint {

// A file in the store's staging folder. Store::Write moves the file into a checkpoint.
class FileInStaging final : public StagedFile {
 public:
  FileInStaging(FileSystem& files, std::string name, std::string path,
                std::unique_ptr<WritableFile> file)
      : files_(files),
        name_(std::move(name)),
        path_(std::move(path)),
        file_(file.get()),
        out_(std::move(file)) {}
  ~FileInStaging() override {
    if (!taken_) (void)files_.Remove(path_);
  }
  const std::string& name() const override { return name_; }
  absl::Status Append(std::string_view bytes) override { return out_.Append(bytes); }
  absl::Status WriteAt(int64_t offset, std::string_view bytes) override {
    in_pieces_ = true;
    return file_->WriteAt(offset, bytes);
  }
  int64_t bytes() const override { return whole_.bytes; }
  absl::Status Finish() override {
    MUSTER_RETURN_IF_ERROR(out_.Finish());
    whole_ = {out_.size(), out_.crc()};
    if (!in_pieces_) return absl::OkStatus();
    MUSTER_ASSIGN_OR_RETURN(const auto file, files_.Open(path_));
    whole_.bytes = file->size();
    MUSTER_ASSIGN_OR_RETURN(whole_.crc32c, ChecksumOf(*file));
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<const RowSource>> Open() const override {
    MUSTER_ASSIGN_OR_RETURN(auto file, files_.Open(path_));
    return OpenRows(std::move(file));
  }

  // Moves the file to `directory` and adds it to the manifest. REQUIRES: Finish has returned OK.
  absl::Status MoveTo(const std::string& directory, Manifest* manifest) {
    MUSTER_RETURN_IF_ERROR(files_.Rename(path_, JoinPath(directory, name_)));
    taken_ = true;
    manifest->files[name_] = whole_;
    return absl::OkStatus();
  }

 private:
  FileSystem& files_;
  const std::string name_, path_;
  WritableFile* const file_;  // Owned by out_.
  ChecksummedFile out_;
  std::atomic<bool> in_pieces_ = false;
  Manifest::File whole_;  // Set by Finish.
  bool taken_ = false;
};

}  // namespace muster::checkpoint
