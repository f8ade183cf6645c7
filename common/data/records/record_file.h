// Reads TFRecord files with random access to the records. common/base/files/record.h has the format
// of a record. The file is plain, or compressed as a whole with gzip or zlib. Needs no LibTorch.
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
  // Opens the file and finds its records. Maps a plain file, and reads only the lengths of records.
  // Decompresses a compressed file into memory. A DataError names the file and the byte at which
  // the file is truncated or damaged.
  static absl::StatusOr<std::shared_ptr<const RecordFile>> Open(const std::string& path);

  int64_t size() const { return static_cast<int64_t>(starts_.size()); }
  // Verifies the checksum of record `index` and returns the record's data. The data is valid as
  // long as this object exists. REQUIRES: 0 <= index < size().
  absl::StatusOr<std::string_view> Record(int64_t index) const;
  const std::string& path() const { return path_; }

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  absl::Status FindRecords();
  std::string At(int64_t offset) const;  // Returns the position for messages.

  const std::string path_;
  std::shared_ptr<const void> owner_;
  std::string_view bytes_;
  bool compressed_ = false;
  std::vector<int64_t> starts_;  // The offset of each record. A record begins with its length.
};

}  // namespace muster::data
