#include "common/data/records/record_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "common/base/files/crc32c.h"
#include "common/data/files/byte_source.h"

namespace muster::data {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr int64_t kHead = 12, kTail = 4;

template <typename T>
T Number(std::string_view bytes, int64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

bool IsHead(std::string_view bytes) {
  return bytes.size() >= static_cast<size_t>(kHead) &&
         Number<uint32_t>(bytes, 8) == MaskedCrc32c(bytes.substr(0, 8));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RecordFile>> RecordFile::Open(const std::string& path) {
  std::shared_ptr<RecordFile> file(new RecordFile(path));
  MUSTER_ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path));
  file->bytes_ = mapped->bytes();
  const bool gzip = file->bytes_.starts_with("\x1f\x8b"), zlib = file->bytes_.starts_with('\x78');
  if (!IsHead(file->bytes_) && (gzip || zlib)) {
    MUSTER_ASSIGN_OR_RETURN(
        std::string unpacked,
        InflateAll(file->bytes_, gzip ? Deflated::kGzip : Deflated::kZlib, path));
    auto owner = std::make_shared<const std::string>(std::move(unpacked));
    file->bytes_ = *owner;
    file->owner_ = std::move(owner);
    file->compressed_ = true;
  } else {
    file->owner_ = std::move(mapped);
  }
  MUSTER_RETURN_IF_ERROR(file->FindRecords());
  return file;
}

std::string RecordFile::At(int64_t offset) const {
  return fmt::format("byte {}{}", offset, compressed_ ? " of what it unpacks to" : "");
}

absl::Status RecordFile::FindRecords() {
  const auto end = static_cast<int64_t>(bytes_.size());
  for (int64_t at = 0; at < end;) {
    const std::string_view rest = bytes_.substr(at);
    if (static_cast<int64_t>(rest.size()) >= kHead && !IsHead(rest)) {
      if (at == 0) {
        return DataError(fmt::format(
            "'{}' is no TFRecord file, or is damaged: the checksum of its first record's length is "
            "wrong.",
            path_));
      }
      return DataError(
          fmt::format("'{}' is damaged: the checksum of the length of record {}, at {}, is wrong.",
                      path_, starts_.size(), At(at)));
    }
    const bool head = static_cast<int64_t>(rest.size()) >= kHead;
    const uint64_t length = head ? Number<uint64_t>(rest, 0) : 0;
    if (!head || length > rest.size() ||
        rest.size() - length < static_cast<uint64_t>(kHead + kTail)) {
      return DataError(fmt::format(
          "'{}' is truncated: record {}, which begins at {}, {}, and the data end at byte {}.",
          path_, starts_.size(), At(at),
          head ? fmt::format("takes {} bytes", length + kHead + kTail) : "has no whole length",
          end));
    }
    starts_.push_back(at);
    at += kHead + static_cast<int64_t>(length) + kTail;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> RecordFile::Record(int64_t index) const {
  const int64_t start = starts_[index];
  const auto length = Number<uint64_t>(bytes_, start);
  const std::string_view data = bytes_.substr(start + kHead, length);
  if (Number<uint32_t>(bytes_, start + kHead + static_cast<int64_t>(length)) == MaskedCrc32c(data))
    return data;
  return DataError(fmt::format("'{}' is damaged: the checksum of record {}, at {}, is wrong.",
                               path_, index, At(start)));
}

}  // namespace muster::data
