// A file that is being written, with the size and the CRC-32C of what went in. Owned and used by
// one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/checkpoint/file_system.h"

namespace muster::checkpoint {

class ChecksummedFile {
 public:
  explicit ChecksummedFile(std::unique_ptr<WritableFile> file);

  // Large pieces go through without a copy, small ones are gathered.
  absl::Status Append(std::string_view bytes);
  // All of it is on the disk when it returns; nothing may follow.
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

// The CRC-32C of a whole file, with little memory. Cancelled where `stop`, which is asked between
// two pieces, is true.
absl::StatusOr<uint32_t> ChecksumOf(const ReadableFile& file,
                                    const std::function<bool()>& stop = nullptr);

}  // namespace muster::checkpoint
