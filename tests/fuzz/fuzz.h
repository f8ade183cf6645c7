// Helpers of the fuzz targets. A target is a file NAME_fuzz.cc with a LLVMFuzzerTestOneInput that
// passes any bytes to one parser. The parser may refuse the bytes with a Status, but must not end
// the process. docs/fuzzing.md says how to run the targets.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "common/base/files/fd.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace muster::fuzz {

// Ends the process, which the fuzzer reports, if `holds` is false.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Reads values from an input, from its beginning. Bytes after the end are zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const size_t taken = std::min(sizeof value, size_);
    if (taken > 0) std::memcpy(static_cast<void*>(&value), data_, taken);
    Skip(taken);
    return value;
  }
  // Reads a length of 16 bits, and returns the following piece of this length.
  std::string_view Piece() {
    const size_t length = std::min<size_t>(Take<uint16_t>(), size_);
    const std::string_view piece = Text(data_, length);
    Skip(length);
    return piece;
  }
  std::string_view Rest() const { return Text(data_, size_); }
  bool done() const { return size_ == 0; }

 private:
  void Skip(size_t bytes) { data_ += bytes, size_ -= bytes; }
  const uint8_t* data_;
  size_t size_;
};

// A file in memory, for parsers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    Require(fd_.get() >= 0, "memfd_create");
    Require(write(fd_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "write to a file in memory");
    path_ = "/proc/self/fd/" + std::to_string(fd_.get());
  }
  const std::string& path() const { return path_; }

 private:
  Fd fd_;
  std::string path_;
};

}  // namespace muster::fuzz
