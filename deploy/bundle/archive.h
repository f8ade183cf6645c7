// Writes a compressed tar archive. The same files give the same bytes: times, owners and
// permissions of the originals do not count.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

inline constexpr int kMinCompression = 1, kMaxCompression = 19;

// What the name of an archive ends with tells how it is compressed. gzip is for hosts without zstd.
inline constexpr const char* kArchiveEndings[] = {".tar.zst", ".tar.gz"};

// Writes beside `path`, and Finish() renames. Without it, nothing is left.
class ArchiveWriter {
 public:
  // `compression`: from kMinCompression, quick, to kMaxCompression, small; gzip ends at 9.
  // ConfigurationError if the name has another ending, or the file cannot be created.
  static absl::StatusOr<ArchiveWriter> Open(const std::string& path, int compression);

  absl::Status Add(const std::string& name, std::string_view content, bool executable);
  absl::Status Finish();

 private:
  struct State;
  struct Abandon {
    void operator()(State* state) const;
  };

  std::unique_ptr<State, Abandon> state_;
};

}  // namespace muster
