// TFRecord files (framed as in common/base/files/record.h) with random access to the records. The
// file is plain, or wholly gzip or zlib. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// Immutable, thread-safe.
class RecordFile {
 public:
  // Finds the records. Maps a plain file, and reads and checks only the length of each record.
  // Decompresses a compressed file into memory. A DataError names the file and the byte at which it
  // is truncated or damaged.
  static absl::StatusOr<std::shared_ptr<const RecordFile>> Open(const std::string& path);

  int64_t size() const { return static_cast<int64_t>(starts_.size()); }
  // Returns the data of record `index` and verifies its checksum. The data is valid as long as this
  // object. Requires 0 <= index < size().
  absl::StatusOr<std::string_view> Record(int64_t index) const;
  const std::string& path() const { return path_; }

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  absl::Status FindRecords();
  std::string At(int64_t offset) const;  // For messages.

  const std::string path_;
  std::shared_ptr<const void> owner_;
  std::string_view bytes_;
  bool compressed_ = false;
  std::vector<int64_t> starts_;  // Offsets of the records' lengths.
};

}  // namespace muster::data
