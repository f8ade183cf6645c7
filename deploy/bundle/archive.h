// Writes a compressed tar archive. Equal files give equal archives, because an archive does not
// contain the times, owners and permissions of the original files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

inline constexpr int kMinCompression = 1, kMaxCompression = 19;

// The possible endings of an archive's name, which select zstd or gzip. gzip is for hosts without
// zstd.
inline constexpr const char* kArchiveEndings[] = {".tar.zst", ".tar.gz"};

// Writes to a temporary file in the folder of `path`. Finish() renames the file to `path`. If
// Finish() was not called, the destructor removes the file. Not thread-safe.
class ArchiveWriter {
 public:
  // `compression` is from kMinCompression (fastest) to kMaxCompression (smallest). For gzip, values
  // above 9 mean 9. Returns ConfigurationError if `path` does not end with one of kArchiveEndings,
  // or if the file cannot be created.
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
