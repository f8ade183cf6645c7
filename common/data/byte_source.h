// Bytes of a file in order, decompressed where it is gzip, straight into the caller's memory.
// Errors are DataErrors that name the file. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster::data {

// For one thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads `count` bytes; fewer only at the end. Checksums are checked by the read that meets the
  // end.
  virtual absl::StatusOr<int64_t> Read(void* to, int64_t count) = 0;
  // Whether so many bytes from the start to the end may be had, as far as can be told without
  // reading: exact for a plain file; for gzip the last four bytes and the format's limits decide,
  // and "no" can be wrong (several members).
  virtual bool MayHold(int64_t bytes) const = 0;
};

// REQUIRES of the file: it exists and is a regular one.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path, bool gzip_allowed);

// All bytes of a file, as they are.
absl::StatusOr<std::string> ReadAll(const std::string& path);

// Of bytes in memory, which must outlive it.
std::unique_ptr<ByteSource> MemoryBytes(std::string_view bytes);

// A file's bytes, for reading: mapped into memory, so that a page is read at its first use and the
// processes of a host share it. A file that is cut short while it is mapped ends the process.
class MappedFile {
 public:
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}
  const std::string_view bytes_;
};

// All that a zlib stream holds, or gzip's members one after another. `name` is for messages.
enum class Deflated { kZlib, kGzip };
absl::StatusOr<std::string> InflateAll(std::string_view packed, Deflated kind,
                                       const std::string& name);

// Reads on to the end, keeping nothing: the number of bytes, or `limit` if there are more.
absl::StatusOr<int64_t> CountRest(ByteSource& source, int64_t limit);

// Exactly `count` bytes, else a DataError: "'<path>' ends within <what>".
absl::Status ReadExactly(ByteSource& source, void* to, int64_t count, const std::string& path,
                         const char* what);

}  // namespace muster::data
