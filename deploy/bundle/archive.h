// Writes a compressed tar archive. The archive is reproducible: it does not contain the times,
// owners and permissions of the original files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

inline constexpr int kMinCompression = 1, kMaxCompression = 19;

// The ending of an archive's name selects the compression. gzip is for hosts without zstd.
inline constexpr const char* kArchiveEndings[] = {".tar.zst", ".tar.gz"};

// Writes to a temporary file beside `path`, which Finish() renames to `path`. Without Finish(), the
// destructor removes the file. Not thread-safe.
class ArchiveWriter {
 public:
  // `compression` is from kMinCompression (fastest) to kMaxCompression (smallest). For gzip, levels
  // above 9 are 9. Returns ConfigurationError if the name has another ending or the file cannot be
  // created.
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
