#include "common/data/files/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/files/fd.h"
#include "common/data/files/damage.h"

namespace muster::data {
namespace {

class FileSource final : public ByteSource {
 public:
  FileSource(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~FileSource() override { close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  absl::StatusOr<int64_t> Read(void* to, int64_t count) override {
    MUSTER_ASSIGN_OR_RETURN(int64_t done, ReadAt(place_, to, count));
    place_ += done;
    return done;
  }
  bool MayHold(int64_t bytes) const override { return bytes == size_; }

  absl::StatusOr<int64_t> ReadAt(int64_t place, void* to, int64_t count) const {
    int64_t done = 0;
    while (done < count) {
      const ssize_t got = pread(fd_, static_cast<char*>(to) + done, count - done, place + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FileError(path_, "read", errno);
      if (got == 0) break;
      done += got;
    }
    return done;
  }
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

 private:
  const std::string path_;
  const int fd_;
  const int64_t size_;
  int64_t place_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<FileSource> file, uint32_t last_word)
      : file_(std::move(file)), last_word_(last_word), buffer_(kBuffer) {
    initialized_ = inflateInit2(&stream_, MAX_WBITS + 16) == Z_OK;
  }
  ~GzipSource() override {
    if (initialized_) inflateEnd(&stream_);
  }

  absl::StatusOr<int64_t> Read(void* to, int64_t count) override {
    if (!initialized_) return DataError(fmt::format("'{}': no memory for zlib.", file_->path()));
    int64_t done = 0;
    while (done < count && !ended_) {
      MUSTER_ASSIGN_OR_RETURN(bool more, Refill());
      if (!more) {
        return DataError(
            fmt::format("'{}' is truncated: its gzip data stops in the middle.", file_->path()));
      }
      const auto room = static_cast<uInt>(std::min<int64_t>(count - done, 1 << 30));
      stream_.next_out = static_cast<Bytef*>(to) + done;
      stream_.avail_out = room;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (code == Z_STREAM_END) {
        MUSTER_RETURN_IF_ERROR(EndMember());
      } else if (code != Z_OK) {
        return DataError(fmt::format("'{}' is damaged: bad gzip data ({}).", file_->path(),
                                     stream_.msg != nullptr ? stream_.msg : zError(code)));
      }
    }
    return done;
  }

  bool MayHold(int64_t bytes) const override {
    // Deflate's best ratio is 1032:1. The last 4 bytes of the file are the length of its last
    // member.
    return bytes / 1032 <= file_->size() && static_cast<uint32_t>(bytes) == last_word_;
  }

 private:
  static constexpr size_t kBuffer = 256 << 10;

  // Reads more compressed input if none is left. Returns false at the end of the file.
  absl::StatusOr<bool> Refill() {
    if (stream_.avail_in > 0) return true;
    MUSTER_ASSIGN_OR_RETURN(int64_t got, file_->Read(buffer_.data(), kBuffer));
    stream_.next_in = buffer_.data();
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  // Continues with the next member of the gzip file, if there is one.
  absl::Status EndMember() {
    MUSTER_ASSIGN_OR_RETURN(bool more, Refill());
    ended_ = !more;
    if (!more) return absl::OkStatus();
    if (*stream_.next_in != 0x1f) {
      return DataError(fmt::format(
          "'{}' is damaged: bytes that are no gzip data follow its gzip data.", file_->path()));
    }
    inflateReset(&stream_);
    return absl::OkStatus();
  }

  const std::unique_ptr<FileSource> file_;
  const uint32_t last_word_;
  std::vector<Bytef> buffer_;
  z_stream stream_{};
  bool initialized_ = false, ended_ = false;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  absl::StatusOr<int64_t> Read(void* to, int64_t count) override {
    const auto got = std::min<size_t>(count, bytes_.size() - place_);
    if (got > 0) std::memcpy(to, bytes_.data() + place_, got);
    place_ += got;
    return static_cast<int64_t>(got);
  }
  bool MayHold(int64_t bytes) const override {
    return bytes == static_cast<int64_t>(bytes_.size());
  }

 private:
  const std::string_view bytes_;
  size_t place_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> MemoryBytes(std::string_view bytes) {
  return std::make_unique<MemorySource>(bytes);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return FileError(path, "opened", errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return DataError(fmt::format("'{}' is not a regular file.", path));
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::shared_ptr<const MappedFile>(new MappedFile({}));
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) return FileError(path, "mapped into memory", errno);
  return std::shared_ptr<const MappedFile>(
      new MappedFile({static_cast<const char*>(mapped), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<std::string> InflateAll(std::string_view packed, Deflated kind,
                                       const std::string& name) {
  z_stream stream{};
  if (inflateInit2(&stream, kind == Deflated::kGzip ? MAX_WBITS + 16 : MAX_WBITS) != Z_OK)
    return DataError(fmt::format("'{}': no memory for zlib.", name));
  std::string out;
  size_t size = 0, read = 0;
  int code = Z_OK;
  while (code == Z_OK || (code == Z_STREAM_END && read < packed.size())) {
    if (code == Z_STREAM_END) {
      if (kind == Deflated::kZlib || packed[read] != '\x1f') break;
      inflateReset(&stream);
    }
    if (size == out.size()) out.resize(std::max<size_t>(2 * size, 64 << 10));
    const auto given = static_cast<uInt>(std::min<size_t>(packed.size() - read, 1 << 30));
    const auto room = static_cast<uInt>(std::min<size_t>(out.size() - size, 1 << 30));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
    stream.avail_in = given;
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + size);
    stream.avail_out = room;
    code = inflate(&stream, Z_NO_FLUSH);
    read += given - stream.avail_in;
    size += room - stream.avail_out;
  }
  const std::string why = stream.msg != nullptr ? stream.msg : zError(code);
  inflateEnd(&stream);
  out.resize(size);
  if (code == Z_STREAM_END && read == packed.size()) return out;
  if (code == Z_BUF_ERROR) {
    return DataError(fmt::format("'{}' is truncated: its compressed data stop at byte {}.", name,
                                 packed.size()));
  }
  return DataError(fmt::format("'{}' is damaged: bad compressed data near byte {} ({}).", name,
                               read, code == Z_STREAM_END ? "other bytes follow them" : why));
}

namespace {

absl::StatusOr<std::unique_ptr<FileSource>> OpenFile(const std::string& path) {
  // O_NONBLOCK prevents open() from blocking on a named pipe, which is refused below.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(path, "opened", errno);
  struct stat info {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  auto file = std::make_unique<FileSource>(path, fd, info.st_size);
  if (!regular) return DataError(fmt::format("'{}' is not a regular file.", path));
  return file;
}

}  // namespace

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  // One more byte shows whether the file has grown.
  std::string bytes(file->size() + 1, '\0');
  for (size_t done = 0;;) {
    MUSTER_ASSIGN_OR_RETURN(const int64_t got,
                            file->Read(bytes.data() + done, bytes.size() - done));
    done += got;
    if (done < bytes.size()) {
      bytes.resize(done);
      return bytes;
    }
    bytes.resize(2 * bytes.size());
  }
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const std::string& path, bool gzip_allowed) {
  MUSTER_ASSIGN_OR_RETURN(auto file, OpenFile(path));
  uint8_t magic[2] = {}, last[4] = {};
  if (gzip_allowed && file->size() >= 4) {
    MUSTER_RETURN_IF_ERROR(file->ReadAt(0, magic, sizeof(magic)).status());
    MUSTER_RETURN_IF_ERROR(file->ReadAt(file->size() - 4, last, sizeof(last)).status());
  }
  if (magic[0] != 0x1f || magic[1] != 0x8b) return file;
  const uint32_t length = last[0] | last[1] << 8 | last[2] << 16 | uint32_t{last[3]} << 24;
  return std::make_unique<GzipSource>(std::move(file), length);
}

absl::StatusOr<int64_t> CountRest(ByteSource& source, int64_t limit) {
  std::vector<char> buffer(64 << 10);
  int64_t count = 0;
  while (count < limit) {
    MUSTER_ASSIGN_OR_RETURN(int64_t got, source.Read(buffer.data(), buffer.size()));
    count += got;
    if (got < static_cast<int64_t>(buffer.size())) break;
  }
  return std::min(count, limit);
}

absl::Status ReadExactly(ByteSource& source, void* to, int64_t count, const std::string& path,
                         const char* what) {
  MUSTER_ASSIGN_OR_RETURN(int64_t got, source.Read(to, count));
  if (got == count) return absl::OkStatus();
  return DataError(fmt::format("'{}' is truncated: it ends within {}.", path, what));
}

}  // namespace muster::data
