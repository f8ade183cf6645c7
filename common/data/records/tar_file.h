// Reads tar archives (POSIX.1-1988 ustar, POSIX.1-2001 pax, GNU's long names and sizes) with random
// access to the members. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// Immutable, thread-safe.
class TarFile {
 public:
  struct Member {
    std::string name;
    std::string_view bytes;  // Valid as long as the TarFile exists.
  };
  // Opens the archive and lists its regular files, in the archive's order. Maps a plain archive.
  // Decompresses a gzip archive into memory. A DataError names the file and the byte at which the
  // file is truncated or damaged.
  static absl::StatusOr<std::shared_ptr<const TarFile>> Open(const std::string& path);
  const std::vector<Member>& members() const { return members_; }
  const std::string& path() const { return path_; }

 private:
  explicit TarFile(std::string path) : path_(std::move(path)) {}
  absl::Status FindMembers();

  const std::string path_;
  std::shared_ptr<const void> owner_;
  std::string_view bytes_;
  std::vector<Member> members_;
};

}  // namespace muster::data
