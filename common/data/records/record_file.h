// TFRecord files (framed as common/base/record.h says), with any record at hand: plain, or the
// whole file gzip or zlib. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// Immutable, any thread.
class RecordFile {
 public:
  // Finds where the records are. A plain file is mapped, and of each record its length alone is
  // read and checked; a compressed one is unpacked into memory. A DataError names the file and the
  // byte at which it is truncated or damaged.
  static absl::StatusOr<std::shared_ptr<const RecordFile>> Open(const std::string& path);

  int64_t size() const { return static_cast<int64_t>(starts_.size()); }
  // The data of record `index`, its checksum compared. Valid as long as this file.
  absl::StatusOr<std::string_view> Record(int64_t index) const;
  const std::string& path() const { return path_; }

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  absl::Status FindRecords();
  std::string At(int64_t offset) const;  // for messages

  const std::string path_;
  std::shared_ptr<const void> owner_;
  std::string_view bytes_;
  bool compressed_ = false;
  std::vector<int64_t> starts_;  // of the records' lengths
};

}  // namespace muster::data
