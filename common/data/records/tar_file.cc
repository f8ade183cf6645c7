#include "common/data/records/tar_file.h"

#include <fmt/format.h>

#include <charconv>

#include "common/data/files/byte_source.h"

namespace muster::data {
namespace {

constexpr size_t kBlock = 512;

std::string_view Text(std::string_view block, size_t at, size_t size) {
  const std::string_view field = block.substr(at, size);
  return field.substr(0, field.find('\0'));
}

// Parses octal digits, or GNU's big-endian number after a byte 0x80. Returns -1 for anything else.
int64_t Number(std::string_view block, size_t at, size_t size) {
  if (static_cast<unsigned char>(block[at]) == 0x80) {
    uint64_t value = 0;
    for (size_t i = size - 8; i < size; ++i)
      value = value << 8 | static_cast<unsigned char>(block[at + i]);
    return value > INT64_MAX ? -1 : static_cast<int64_t>(value);
  }
  std::string_view digits = Text(block, at, size);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (digits.empty()) return 0;
  return error == std::errc() && end == digits.data() + digits.size() && value >= 0 ? value : -1;
}

bool ChecksumIsRight(std::string_view block) {
  int64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  return sum == Number(block, 148, 8);
}

// Parses pax records "<length> <key>=<value>\n", which describe the next member.
void ReadPax(std::string_view text, std::string* name, int64_t* size) {
  while (!text.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const size_t start = end - text.data() + 1;
    if (error != std::errc() || length > text.size() || length <= start) return;
    const std::string_view record = text.substr(start, length - start - 1);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") *name = value;
    if (key == "size") std::from_chars(value.data(), value.data() + value.size(), *size);
    text.remove_prefix(length);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TarFile>> TarFile::Open(const std::string& path) {
  std::shared_ptr<TarFile> file(new TarFile(path));
  MUSTER_ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path));
  file->bytes_ = mapped->bytes();
  if (file->bytes_.starts_with("\x1f\x8b")) {
    MUSTER_ASSIGN_OR_RETURN(std::string unpacked, InflateAll(file->bytes_, Deflated::kGzip, path));
    auto owner = std::make_shared<const std::string>(std::move(unpacked));
    file->bytes_ = *owner;
    file->owner_ = std::move(owner);
  } else {
    file->owner_ = std::move(mapped);
  }
  MUSTER_RETURN_IF_ERROR(file->FindMembers());
  return file;
}

absl::Status TarFile::FindMembers() {
  std::string long_name;
  int64_t long_size = -1;
  size_t at = 0;
  for (;;) {
    const std::string_view block = bytes_.substr(std::min(at, bytes_.size()), kBlock);
    // The archive ends with blocks of zeros.
    if (block.empty()) {
      return DataError(fmt::format(
          "'{}' is truncated: it ends at byte {}, without the blocks of zeros that end a tar file.",
          path_, bytes_.size()));
    }
    if (block.size() == kBlock && block.find_first_not_of('\0') == std::string_view::npos)
      return absl::OkStatus();
    if (block.size() == kBlock && !ChecksumIsRight(block)) {
      return DataError(fmt::format("'{}' is {}: the checksum of the header at byte {} is wrong.",
                                   path_, at == 0 ? "no tar file, or damaged" : "damaged", at));
    }
    int64_t size = block.size() == kBlock ? Number(block, 124, 12) : -1;
    if (long_size >= 0) size = long_size;
    if (block.size() < kBlock || size < 0 ||
        static_cast<uint64_t>(size) > bytes_.size() - at - kBlock) {
      return DataError(fmt::format(
          "'{}' is truncated: the member that begins at byte {} goes beyond the end at byte {}.",
          path_, at, bytes_.size()));
    }
    const std::string_view data = bytes_.substr(at + kBlock, size);
    const char type = block[156];
    std::string name(Text(block, 0, 100));
    if (block.substr(257, 6) == std::string_view("ustar\0", 6) && block[345] != '\0')
      name = fmt::format("{}/{}", Text(block, 345, 155), name);
    if (!long_name.empty()) name = long_name;
    const bool is_file = type == '0' || type == '\0';
    if (is_file && name.empty()) {
      return DataError(fmt::format(
          "'{}' is damaged: the member that begins at byte {} has no name.", path_, at));
    }
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
    if (type == 'L') {
      long_name = Text(data, 0, data.size());
    } else if (type == 'x') {
      ReadPax(data, &long_name, &long_size);
    } else if (type != 'g' && type != 'K') {
      if (is_file) members_.push_back({std::move(name), data});
      long_name.clear();
      long_size = -1;
    }
  }
}

}  // namespace muster::data
