#include "common/data/files/token_file.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace muster::data {
namespace {

template <typename T>
void Widen(const char* from, int64_t count, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<int64_t>(token);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenFile>> TokenFile::Open(const std::string& path,
                                                                 const WindowOptions& options,
                                                                 const std::string& key) {
  const int64_t item = options.dtype == "uint16" ? 2 : options.dtype == "uint32" ? 4 : 1;
  auto file = MappedFile::Open(path);
  if (!file.ok()) return Annotate(file.status(), key);
  const auto bytes = static_cast<int64_t>((*file)->bytes().size());
  if (bytes % item != 0) {
    return DataError(fmt::format(
        "{}'{}' has {} bytes, which is no whole number of {} tokens of {} bytes: it is cut short, "
        "or its tokens have another type",
        key, path, bytes, options.dtype, item));
  }
  // Does not add anything to options.length, because a job may give any number and the sum might
  // overflow.
  const int64_t tokens = bytes / item, begins = tokens - (options.targets ? 1 : 0);
  if (begins < options.length) {
    const uint64_t needed = static_cast<uint64_t>(options.length) + (options.targets ? 1 : 0);
    return DataError(fmt::format("{}'{}' has {} tokens, and one example takes {}{}", key, path,
                                 tokens, needed,
                                 options.targets ? ", the last one's target among them" : ""));
  }
  std::shared_ptr<TokenFile> windows(new TokenFile(*std::move(file), options, item));
  windows->windows_ = (begins - options.length) / options.stride + 1;
  return windows;
}

void TokenFile::Read(int64_t window, int64_t shift, int64_t* to) const {
  const char* from = file_->bytes().data() + (window * options_.stride + shift) * item_;
  if (item_ == 1) Widen<uint8_t>(from, options_.length, to);
  if (item_ == 2) Widen<uint16_t>(from, options_.length, to);
  if (item_ == 4) Widen<uint32_t>(from, options_.length, to);
}

}  // namespace muster::data
