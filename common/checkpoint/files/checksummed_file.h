// Writes a file and computes its size and CRC-32C. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {

class ChecksummedFile {
 public:
  explicit ChecksummedFile(std::unique_ptr<WritableFile> file);

  // Buffers small pieces. Writes large pieces without a copy.
  absl::Status Append(std::string_view bytes);
  // Blocks until the whole file is on the disk. No write may follow.
  absl::Status Finish();

  int64_t size() const { return size_; }
  uint32_t crc() const { return crc_; }

 private:
  absl::Status Flush();

  const std::unique_ptr<WritableFile> file_;
  std::string gathered_;
  int64_t size_ = 0;
  uint32_t crc_ = 0;
};

// Computes the CRC-32C of a whole file, piece by piece. Calls `stop` between two pieces. When
// `stop` returns true, returns Cancelled.
absl::StatusOr<uint32_t> ChecksumOf(const ReadableFile& file,
                                    const std::function<bool()>& stop = nullptr);

}  // namespace muster::checkpoint
