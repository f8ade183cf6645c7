// Reads windows of a file of tokens. A token is a byte of text, or a number of 16 or 32 bits. A
// window is a sequence of `length` tokens. The starts of two adjacent windows are `stride` tokens
// apart (WindowOptions). Needs no LibTorch. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/data/files/byte_source.h"
#include "common/data/job/job_data.h"

namespace muster::data {

// A mapped file and its windows of tokens. Immutable.
class TokenFile {
 public:
  // Maps the file. REQUIRES: options.length and options.stride are at least 1. The message of an
  // error begins with `key` and names the file. Returns a DataError if the file has no complete
  // window.
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(const std::string& path,
                                                               const WindowOptions& options,
                                                               const std::string& key);
  const WindowOptions& options() const { return options_; }
  int64_t windows() const { return windows_; }
  // Copies options().length tokens to the address `to`. The first copied token is `shift` tokens
  // after the start of the window. `shift` is 0, or 1 for the targets. REQUIRES: 0 <= window <
  // windows(), and options().targets is true if `shift` is 1.
  void Read(int64_t window, int64_t shift, int64_t* to) const;

 private:
  TokenFile(std::shared_ptr<const MappedFile> file, WindowOptions options, int64_t item)
      : file_(std::move(file)), options_(std::move(options)), item_(item) {}

  const std::shared_ptr<const MappedFile> file_;
  const WindowOptions options_;
  const int64_t item_;  // The number of bytes of a token.
  int64_t windows_ = 0;
};

}  // namespace muster::data
