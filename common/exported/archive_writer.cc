#include "common/exported/archive_writer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace muster::exported {
namespace {

// The version of the zip layout that torch.export.save uses. It is not the version of the program.
constexpr uint64_t kZipVersion = 6;

// A file that appears completely or not at all.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)), partial_(fmt::format("{}.{}.partial", path_, getpid())) {}
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
    if (!done_) unlink(partial_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Open() {
    fd_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd_ < 0 ? Failed() : absl::OkStatus();
  }
  // Returns the number of bytes written. After an error, this is below `size`, and Finish returns
  // the error.
  size_t Write(const void* data, size_t size) {
    const char* from = static_cast<const char*>(data);
    size_t done = 0;
    while (done < size) {
      const ssize_t wrote = write(fd_, from + done, size - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        if (status_.ok()) status_ = Failed();
        return done;
      }
      done += wrote;
    }
    return done;
  }
  absl::Status Finish() {
    if (!status_.ok()) return status_;
    if (fsync(fd_) != 0 || rename(partial_.c_str(), path_.c_str()) != 0) return Failed();
    done_ = true;
    return absl::OkStatus();
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Failed() const {
    return ConfigurationError(fmt::format("could not write {}: {}", path_, std::strerror(errno)));
  }

  const std::string path_, partial_;
  int fd_ = -1;
  bool done_ = false;
  absl::Status status_;
};

absl::Status CheckWeights(const Archive& archive,
                          const std::map<std::string, at::Tensor>& weights) {
  for (const auto& [name, payload] : archive.weight_payloads) {
    const auto found = weights.find(name);
    if (found == weights.end()) {
      return ConfigurationError(fmt::format(
          "{} has the weight \"{}\", and the checkpoint has none of that name: name the "
          "job that wrote the checkpoint",
          archive.path, name));
    }
    if (found->second.sizes() == at::IntArrayRef(payload.sizes) &&
        found->second.scalar_type() == payload.dtype) {
      continue;
    }
    return ConfigurationError(fmt::format(
        "\"{}\" is {} {} in {}, and {} {} in the checkpoint: name the job that wrote the "
        "checkpoint",
        name, c10::toString(payload.dtype), c10::str(at::IntArrayRef(payload.sizes)), archive.path,
        c10::toString(found->second.scalar_type()), c10::str(found->second.sizes())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteTrained(const Archive& archive, const std::map<std::string, at::Tensor>& weights,
                          const std::string& output) {
  const at::NoGradGuard no_grad;
  MUSTER_RETURN_IF_ERROR(CheckWeights(archive, weights));
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ZipReader> zip,
                          ZipReader::Open(archive.path, ArchiveZip()));
  // For each file of a storage, the names of its tensors.
  std::map<std::string, std::vector<std::string>> names_of;
  for (const auto& [name, payload] : archive.weight_payloads)
    names_of[payload.file].push_back(name);
  NewFile file(output);
  MUSTER_RETURN_IF_ERROR(file.Open());
  try {
    caffe2::serialize::PyTorchStreamWriter writer(
        [&file](const void* data, size_t size) { return file.Write(data, size); });
    writer.setMinVersion(kZipVersion);
    for (const std::string& member : zip->names()) {
      // The zip writer adds these members itself.
      if (member.starts_with(".data/") || member == "byteorder" || member == "version") continue;
      const at::Tensor bytes = at::empty({zip->Size(member)}, at::kByte);
      MUSTER_RETURN_IF_ERROR(zip->Read(member, bytes.mutable_data_ptr()));
      if (const auto names = names_of.find(member); names != names_of.end()) {
        for (const std::string& name : names->second) {
          const Payload& payload = archive.weight_payloads.at(name);
          MUSTER_RETURN_IF_ERROR(CheckPayload(payload, bytes.numel()));
          ViewOf(bytes, payload).copy_(weights.at(name));
        }
      }
      writer.writeRecord(member, bytes.const_data_ptr(), bytes.nbytes());
    }
    writer.writeEndOfFile();
  } catch (const c10::Error& error) {
    if (!file.status().ok()) return file.status();
    return ConfigurationError(
        fmt::format("could not write {}: {}", output, error.what_without_backtrace()));
  }
  return file.Finish();
}

}  // namespace muster::exported
