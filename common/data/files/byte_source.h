// Reads and decompresses the bytes of files. Errors are DataErrors that name the file. Internal to
// this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster::data {

// A sequential reader of a file or of memory, which decompresses gzip. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `count` bytes into `to`. Returns the number of bytes, which is below `count` only
  // at the end of the source. The call that reaches the end of a gzip file verifies the checksum.
  virtual absl::StatusOr<int64_t> Read(void* to, int64_t count) = 0;
  // Returns whether the source can have exactly `bytes` bytes in total. Does not read the source.
  // The result is exact for plain files and memory. For gzip, the result follows from the size in
  // the file's last four bytes and from the best compression ratio of the format. If a gzip file
  // consists of several members (concatenated gzip streams), the result `false` may be wrong.
  virtual bool MayHold(int64_t bytes) const = 0;
};

// Opens a regular file. Returns a DataError if the file does not exist or is not a regular file.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path, bool gzip_allowed);

// Returns all bytes of a file, without decompression.
absl::StatusOr<std::string> ReadAll(const std::string& path);

// Returns a source that reads `bytes`, which must outlive the source.
std::unique_ptr<ByteSource> MemoryBytes(std::string_view bytes);

// A read-only mapping of a file. The kernel reads a page when a process first uses the page. All
// processes of a host share the page. If another process truncates the mapped file, this process is
// killed (SIGBUS).
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

// Decompresses a zlib stream, or all members of a gzip file. `name` is for messages.
enum class Deflated { kZlib, kGzip };
absl::StatusOr<std::string> InflateAll(std::string_view packed, Deflated kind,
                                       const std::string& name);

// Counts the bytes up to the end of the source, but at most `limit` bytes. Reads these bytes.
absl::StatusOr<int64_t> CountRest(ByteSource& source, int64_t limit);

// Reads exactly `count` bytes. If the source has fewer bytes, returns the DataError "'<path>' is
// truncated: it ends within <what>."
absl::Status ReadExactly(ByteSource& source, void* to, int64_t count, const std::string& path,
                         const char* what);

}  // namespace muster::data
