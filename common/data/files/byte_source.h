// Reads the bytes of a file in order into the caller's memory, and decompresses gzip. Errors are
// DataErrors that name the file. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster::data {

// Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads `count` bytes, or fewer at the end. The read that reaches the end checks the checksum.
  virtual absl::StatusOr<int64_t> Read(void* to, int64_t count) = 0;
  // True where the source may have `bytes` bytes in all, as far as this can be decided without
  // reading. Exact for a plain file. For gzip it uses the last four bytes and the format's limits,
  // and "false" can be wrong (several members).
  virtual bool MayHold(int64_t bytes) const = 0;
};

// REQUIRES: the file exists and is a regular file.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path, bool gzip_allowed);

// Returns all bytes of a file, without decompression.
absl::StatusOr<std::string> ReadAll(const std::string& path);

// Reads from `bytes`, which must outlive the result.
std::unique_ptr<ByteSource> MemoryBytes(std::string_view bytes);

// A read-only mapping of a file. A page is read at its first use, and the processes of a host share
// it. If the file is truncated while it is mapped, the process is killed (SIGBUS).
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

// Returns the contents of a zlib stream, or of all members of a gzip file. `name` is for messages.
enum class Deflated { kZlib, kGzip };
absl::StatusOr<std::string> InflateAll(std::string_view packed, Deflated kind,
                                       const std::string& name);

// Reads to the end, discards the bytes and returns their number, or `limit` if there are more.
absl::StatusOr<int64_t> CountRest(ByteSource& source, int64_t limit);

// Reads exactly `count` bytes. Otherwise returns a DataError "'<path>' ends within <what>".
absl::Status ReadExactly(ByteSource& source, void* to, int64_t count, const std::string& path,
                         const char* what);

}  // namespace muster::data
