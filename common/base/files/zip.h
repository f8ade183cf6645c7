// A reader of zip archives, including zip64. The members of an archive are stored (uncompressed, as
// LibTorch writes them) or deflated. The reader verifies checksums. Immutable after Open.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

struct ZipOptions {
  // If true, member names omit the part up to the first slash.
  bool without_folder = false;
  // If true, Read returns an error for a deflated member.
  bool only_stored = false;
  // The writer of the archive, for error messages. Example: "numpy.savez writes", for the message
  // "use the file that numpy.savez writes".
  std::string kind;
};

class ZipReader {
 public:
  // Returns a ConfigurationError if the file is missing or not readable. Returns a DataError if the
  // file is truncated or not a zip archive.
  static absl::StatusOr<std::unique_ptr<ZipReader>> Open(const std::string& path,
                                                         ZipOptions options);
  ~ZipReader();

  // The names of the members, in the archive's order.
  const std::vector<std::string>& names() const { return names_; }
  bool Has(const std::string& name) const { return entries_.contains(name); }
  // Returns the member's size in bytes before compression. Size, Read and Offset REQUIRE:
  // Has(name).
  int64_t Size(const std::string& name) const { return entries_.at(name).size; }
  // Writes the Size(name) bytes of the member to `out`. Returns a DataError if the archive is
  // damaged.
  absl::Status Read(const std::string& name, void* out) const;
  // Returns the offset in the file of a stored member's bytes. Returns -1 for a deflated member.
  absl::StatusOr<int64_t> Offset(const std::string& name) const;
  // Reads a member as text. Returns a DataError if the member is missing.
  absl::StatusOr<std::string> ReadText(const std::string& name) const;

  const std::string& path() const { return path_; }

 private:
  struct Entry {
    int64_t offset = 0;  // The offset of the local header.
    int64_t size = 0, packed = 0;
    uint32_t crc = 0;
    uint16_t method = 0;
  };
  ZipReader(std::string path, ZipOptions options, int fd, int64_t bytes)
      : path_(std::move(path)), options_(std::move(options)), fd_(fd), bytes_(bytes) {}
  absl::Status ReadDirectory();
  absl::Status ReadEntries(const std::string& directory, int64_t count);
  // Returns the offset in the file of a member's bytes, stored or deflated.
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
