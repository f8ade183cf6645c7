#include "common/checkpoint/files/faulty_file_system.h"

#include <algorithm>

#include "common/checkpoint/checkpoint.h"

namespace muster::checkpoint {
namespace {

class FaultyFile final : public WritableFile {
 public:
  FaultyFile(std::unique_ptr<WritableFile> file, std::string path, const Faults* faults)
      : file_(std::move(file)), path_(std::move(path)), faults_(faults) {}
  absl::Status Append(std::string_view bytes) override {
    MUSTER_RETURN_IF_ERROR(faults_->CheckDisk(path_));
    return file_->Append(bytes);
  }
  absl::Status WriteAt(int64_t offset, std::string_view bytes) override {
    MUSTER_RETURN_IF_ERROR(faults_->CheckDisk(path_));
    return file_->WriteAt(offset, bytes);
  }
  absl::Status Sync() override {
    MUSTER_RETURN_IF_ERROR(faults_->CheckDisk(path_));
    return file_->Sync();
  }
  absl::Status Close() override { return file_->Close(); }

 private:
  const std::unique_ptr<WritableFile> file_;
  const std::string path_;
  const Faults* const faults_;
};

class FaultyFileSystem final : public FileSystem {
 public:
  FaultyFileSystem(FileSystem& files, Faults* faults) : files_(files), faults_(faults) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    Moment(ParentPath(path));
    MUSTER_RETURN_IF_ERROR(faults_->CheckDisk(path));
    MUSTER_ASSIGN_OR_RETURN(auto file, files_.Create(path));
    return std::make_unique<FaultyFile>(std::move(file), path, faults_);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    return files_.Open(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return files_.List(directory);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override { return files_.Exists(path); }
  absl::Status MakeDirectory(const std::string& path) override {
    MUSTER_RETURN_IF_ERROR(faults_->CheckDisk(path));
    return files_.MakeDirectory(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    Moment(to);
    return files_.Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return files_.Remove(path); }
  absl::Status SyncDirectory(const std::string& path) override {
    return files_.SyncDirectory(path);
  }

 private:
  // Calls Faults::At if the last name of `path` is that of a checkpoint.
  void Moment(const std::string& path) {
    const int64_t step = StepOfName(BaseName(path));
    if (step >= 0) faults_->At(Phase::kSave, step);
  }

  FileSystem& files_;
  Faults* const faults_;
};

}  // namespace

std::unique_ptr<FileSystem> MakeFaultyFileSystem(FileSystem& files, Faults* faults) {
  return std::make_unique<FaultyFileSystem>(files, faults);
}

}  // namespace muster::checkpoint
