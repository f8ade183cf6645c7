// A zip archive: members stored as they are, as LibTorch writes them, or deflated; zip64 where
// something is large. Checksums are compared. Immutable once it is open, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

struct ZipOptions {
  bool without_folder = false;  // names lose what they have before their first slash
  bool only_stored = false;     // deflated members are refused by Read
  std::string kind;             // what made it, for messages: "numpy.savez writes"
};

class ZipReader {
 public:
  // Errors: ConfigurationError where the file is not there or may not be read, DataError where it
  // is no zip archive, or cut short.
  static absl::StatusOr<std::unique_ptr<ZipReader>> Open(const std::string& path,
                                                         ZipOptions options);
  ~ZipReader();

  // Members, in the archive's order.
  const std::vector<std::string>& names() const { return names_; }
  bool Has(const std::string& name) const { return entries_.contains(name); }
  // REQUIRES: Has(name), for these two.
  int64_t Size(const std::string& name) const { return entries_.at(name).size; }
  // Fills `out` with the Size(name) bytes. A DataError says what is damaged.
  absl::Status Read(const std::string& name, void* out) const;
  // Where the bytes of a stored member are in the file; -1 where it is deflated.
  absl::StatusOr<int64_t> Offset(const std::string& name) const;
  // The same as text; a DataError where it is not there.
  absl::StatusOr<std::string> ReadText(const std::string& name) const;

  const std::string& path() const { return path_; }

 private:
  struct Entry {
    int64_t offset = 0;  // of the local header
    int64_t size = 0, packed = 0;
    uint32_t crc = 0;
    uint16_t method = 0;
  };
  ZipReader(std::string path, ZipOptions options, int fd, int64_t bytes)
      : path_(std::move(path)), options_(std::move(options)), fd_(fd), bytes_(bytes) {}
  absl::Status ReadDirectory();
  absl::Status ReadEntries(const std::string& directory, int64_t count);
  // Where a member's bytes are, packed or not.
  absl::StatusOr<int64_t> Find(const std::string& name) const;
  absl::Status Inflate(const std::string& name, int64_t from, void* out) const;
  absl::Status ReadAt(int64_t offset, int64_t size, void* out) const;
  absl::Status Damaged(const std::string& what) const;

  const std::string path_;
  const ZipOptions options_;
  const int fd_;
  const int64_t bytes_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> names_;
};

}  // namespace muster
