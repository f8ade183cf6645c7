#include "common/checkpoint/files/checksummed_file.h"

#include "common/base/files/crc32c.h"

namespace muster::checkpoint {
namespace {

constexpr size_t kGather = 256 << 10;
// The size of a piece. The piece is still in the cache when it is written after its checksum.
constexpr size_t kPiece = 1 << 20;

}  // namespace

ChecksummedFile::ChecksummedFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}

absl::Status ChecksummedFile::Append(std::string_view bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  if (gathered_.size() + bytes.size() <= kGather) {
    gathered_.append(bytes);
    return absl::OkStatus();
  }
  MUSTER_RETURN_IF_ERROR(Flush());
  for (; bytes.size() > kGather; bytes.remove_prefix(std::min(kPiece, bytes.size()))) {
    const std::string_view piece = bytes.substr(0, kPiece);
    crc_ = ExtendCrc32c(crc_, piece);
    MUSTER_RETURN_IF_ERROR(file_->Append(piece));
  }
  gathered_.append(bytes);
  return absl::OkStatus();
}

absl::Status ChecksummedFile::Flush() {
  if (gathered_.empty()) return absl::OkStatus();
  crc_ = ExtendCrc32c(crc_, gathered_);
  const absl::Status status = file_->Append(gathered_);
  gathered_.clear();
  return status;
}

absl::Status ChecksummedFile::Finish() {
  MUSTER_RETURN_IF_ERROR(Flush());
  MUSTER_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

absl::StatusOr<uint32_t> ChecksumOf(const ReadableFile& file, const std::function<bool()>& stop) {
  uint32_t crc = 0;
  std::string piece(std::min<int64_t>(file.size(), kPiece), '\0');
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(piece.size())) {
    if (stop && stop()) return absl::CancelledError("it is not needed now");
    const size_t size = std::min<int64_t>(piece.size(), file.size() - at);
    MUSTER_RETURN_IF_ERROR(file.ReadAt(at, size, piece.data()));
    crc = ExtendCrc32c(crc, {piece.data(), size});
  }
  return crc;
}

}  // namespace muster::checkpoint
