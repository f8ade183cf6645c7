#include "common/base/files/zip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace muster {
namespace {

// Sizes of structures in section 4.3 of the zip specification (APPNOTE.TXT). All numbers in them
// are little-endian.
constexpr int64_t kEndSize = 22, kLocatorSize = 20, kEnd64Size = 56, kEntrySize = 46,
                  kLocalSize = 30, kMaxComment = 65535;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50,
                   kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint16_t kStored = 0, kDeflated = 8, kZip64Field = 1;

template <typename T>
T Number(const std::string& bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string WithoutFolder(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

// Returns the maximum size of `packed` bytes after decompression. Deflate expands data at most
// 1032-fold (258 bytes per two bits).
int64_t MostInflated(int64_t packed) {
  constexpr int64_t kRatio = 1032;
  return packed > (int64_t{1} << 52) ? packed : (packed + 1) * kRatio;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZipReader>> ZipReader::Open(const std::string& path,
                                                           ZipOptions options) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return ConfigurationError(fmt::format("could not open {}: {}", path, std::strerror(errno)));
  }
  struct stat info = {};
  const bool known = fstat(fd, &info) == 0;
  std::unique_ptr<ZipReader> reader(
      new ZipReader(path, std::move(options), fd, known ? info.st_size : 0));
  if (!known || !S_ISREG(info.st_mode)) {
    return ConfigurationError(fmt::format("{} is no file", path));
  }
  MUSTER_RETURN_IF_ERROR(reader->ReadDirectory());
  return reader;
}

ZipReader::~ZipReader() { close(fd_); }

absl::Status ZipReader::Damaged(const std::string& what) const {
  return DataError(fmt::format("{} is damaged: {}", path_, what));
}

absl::Status ZipReader::ReadAt(int64_t offset, int64_t size, void* out) const {
  if (offset < 0 || size < 0 || offset > bytes_ || size > bytes_ - offset) {
    return Damaged("a part of it lies behind its end");
  }
  char* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = pread(fd_, to, size, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DataError(fmt::format("could not read {}: {}", path_, strerror(errno)));
    if (got == 0) return Damaged("it became shorter while it was read");
    to += got, offset += got, size -= got;
  }
  return absl::OkStatus();
}

absl::Status ZipReader::ReadDirectory() {
  const int64_t tail_size = std::min(bytes_, kEndSize + kMaxComment + kLocatorSize);
  std::string tail(tail_size, '\0');
  MUSTER_RETURN_IF_ERROR(ReadAt(bytes_ - tail_size, tail_size, tail.data()));
  int64_t end = tail_size - kEndSize;
  while (end >= 0 && Number<uint32_t>(tail, end) != kEndMark) --end;
  if (end < 0) {
    return Damaged(
        fmt::format("it is no zip archive, which what {} is, or was cut short", options_.kind));
  }
  int64_t count = Number<uint16_t>(tail, end + 10);
  int64_t size = Number<uint32_t>(tail, end + 12), offset = Number<uint32_t>(tail, end + 16);
  const int64_t locator = end - kLocatorSize;
  if (locator >= 0 && Number<uint32_t>(tail, locator) == kLocatorMark) {
    std::string end64(kEnd64Size, '\0');
    MUSTER_RETURN_IF_ERROR(ReadAt(Number<int64_t>(tail, locator + 8), kEnd64Size, end64.data()));
    if (Number<uint32_t>(end64, 0) != kEnd64Mark) return Damaged("its directory is not in place");
    count = Number<int64_t>(end64, 32);
    size = Number<int64_t>(end64, 40), offset = Number<int64_t>(end64, 48);
  }
  if (offset < 0 || size < 0 || offset > bytes_ || size > bytes_ - offset) {
    return Damaged("its directory lies behind its end");
  }
  std::string directory(size, '\0');
  MUSTER_RETURN_IF_ERROR(ReadAt(offset, size, directory.data()));
  return ReadEntries(directory, count);
}

absl::Status ZipReader::ReadEntries(const std::string& directory, int64_t count) {
  const int64_t size = static_cast<int64_t>(directory.size());
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (at + kEntrySize > size || Number<uint32_t>(directory, at) != kEntryMark) {
      return Damaged("its directory is not whole");
    }
    const int64_t name_size = Number<uint16_t>(directory, at + 28);
    const int64_t extra_size = Number<uint16_t>(directory, at + 30);
    const int64_t comment_size = Number<uint16_t>(directory, at + 32);
    const int64_t extra = at + kEntrySize + name_size;
    if (extra + extra_size + comment_size > size) return Damaged("its directory is not whole");
    Entry entry;
    entry.method = Number<uint16_t>(directory, at + 10);
    entry.crc = Number<uint32_t>(directory, at + 16);
    entry.packed = Number<uint32_t>(directory, at + 20);
    entry.size = Number<uint32_t>(directory, at + 24);
    entry.offset = Number<uint32_t>(directory, at + 42);
    // A value that does not fit in 32 bits is all ones here. An extra field contains such values in
    // this order.
    for (int64_t f = extra; f + 4 <= extra + extra_size;) {
      const uint16_t id = Number<uint16_t>(directory, f);
      const int64_t field_end = f + 4 + Number<uint16_t>(directory, f + 2);
      if (field_end > extra + extra_size) return Damaged("its directory is not whole");
      int64_t next = f + 4;
      for (int64_t* value : {&entry.size, &entry.packed, &entry.offset}) {
        if (id != kZip64Field || *value != 0xffffffff || next + 8 > field_end) continue;
        *value = Number<int64_t>(directory, next);
        next += 8;
      }
      f = field_end;
    }
    if (entry.size < 0 || entry.packed < 0 || entry.offset < 0)
      return Damaged("its directory is not whole");
    std::string name = directory.substr(at + kEntrySize, name_size);
    if (options_.without_folder) name = WithoutFolder(name);
    // Callers allocate memory of this size, so a size that the file cannot contain is refused.
    const int64_t held =
        entry.method == kStored ? bytes_ : MostInflated(std::min(bytes_, entry.packed));
    if (entry.size > held)
      return Damaged(fmt::format("{} claims {} bytes, which it cannot hold", name, entry.size));
    if (!entries_.emplace(name, entry).second)
      return Damaged(fmt::format("it holds {} twice", name));
    names_.push_back(name);
    at = extra + extra_size + comment_size;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ZipReader::Find(const std::string& name) const {
  const Entry& entry = entries_.at(name);
  std::string local(kLocalSize, '\0');
  MUSTER_RETURN_IF_ERROR(ReadAt(entry.offset, kLocalSize, local.data()));
  if (Number<uint32_t>(local, 0) != kLocalMark)
    return Damaged(fmt::format("{} is not in place", name));
  const int64_t data =
      entry.offset + kLocalSize + Number<uint16_t>(local, 26) + Number<uint16_t>(local, 28);
  const int64_t size = entry.method == kStored ? entry.size : entry.packed;
  if (data > bytes_ || size > bytes_ - data) return Damaged("a part of it lies behind its end");
  return data;
}

absl::StatusOr<int64_t> ZipReader::Offset(const std::string& name) const {
  if (entries_.at(name).method != kStored) return -1;
  return Find(name);
}

absl::Status ZipReader::Inflate(const std::string& name, int64_t from, void* out) const {
  const Entry& entry = entries_.at(name);
  std::string packed(std::min<int64_t>(entry.packed, 1 << 20), '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return DataError("there is no memory for zlib");
  int64_t left = entry.packed, room = entry.size;
  stream.next_out = static_cast<Bytef*>(out);
  int code = Z_OK;
  absl::Status read;
  while (code == Z_OK && read.ok()) {
    if (stream.avail_in == 0 && left > 0) {
      const int64_t piece = std::min<int64_t>(left, static_cast<int64_t>(packed.size()));
      read = ReadAt(from + entry.packed - left, piece, packed.data());
      stream.next_in = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_in = static_cast<uInt>(piece);
      left -= piece;
    }
    if (stream.avail_out == 0) {
      stream.avail_out = static_cast<uInt>(std::min<int64_t>(room, 1 << 30));
      room -= stream.avail_out;
    }
    // inflate returns Z_BUF_ERROR if there is no output space or no input left. The member then has
    // more or fewer bytes than its size says.
    if (read.ok()) code = inflate(&stream, Z_NO_FLUSH);
  }
  const bool whole = code == Z_STREAM_END && room == 0 && stream.avail_out == 0;
  inflateEnd(&stream);
  MUSTER_RETURN_IF_ERROR(read);
  return whole ? absl::OkStatus() : Damaged(fmt::format("{} cannot be inflated", name));
}

absl::Status ZipReader::Read(const std::string& name, void* out) const {
  const Entry& entry = entries_.at(name);
  if (entry.method != kStored && (options_.only_stored || entry.method != kDeflated)) {
    return DataError(fmt::format("{} was repacked with compression ({}): use the file that {}",
                                 path_, name, options_.kind));
  }
  MUSTER_ASSIGN_OR_RETURN(const int64_t data, Find(name));
  if (entry.method == kStored) {
    MUSTER_RETURN_IF_ERROR(ReadAt(data, entry.size, out));
  } else {
    MUSTER_RETURN_IF_ERROR(Inflate(name, data, out));
  }
  uLong crc = crc32(0, nullptr, 0);
  const auto* bytes = static_cast<const Bytef*>(out);
  for (int64_t done = 0; done < entry.size;) {
    const int64_t piece = std::min<int64_t>(entry.size - done, 1 << 30);
    crc = crc32(crc, bytes + done, static_cast<uInt>(piece));
    done += piece;
  }
  if (static_cast<uint32_t>(crc) != entry.crc) {
    return Damaged(fmt::format("the checksum of {} is {:08x}, not {:08x}", name, crc, entry.crc));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ZipReader::ReadText(const std::string& name) const {
  if (!Has(name)) return Damaged(fmt::format("{} is missing", name));
  const int64_t size = Size(name);
  if (size > bytes_) return Damaged(fmt::format("{} is longer than the whole file", name));
  std::string text(size, '\0');
  MUSTER_RETURN_IF_ERROR(Read(name, text.data()));
  return text;
}

}  // namespace muster
