// A checkpoint that this process can read: where the chief announced it, or, where that path is
// another one's or nobody's here, fetched from the chief into a private temporary folder.
#pragma once

#include <string>

#include "common/checkpoint/file_system.h"
#include "evaluator/chief_link.h"

namespace muster {

class FetchedCheckpoint {
 public:
  // Errors: what keeps this one from being read. Checksums of the files are the reader's to check.
  static absl::StatusOr<FetchedCheckpoint> Get(checkpoint::FileSystem& files, ChiefLink& link,
                                               const proto::Announcement& announced);
  FetchedCheckpoint(FetchedCheckpoint&& other) noexcept;
  FetchedCheckpoint& operator=(FetchedCheckpoint&&) = delete;
  ~FetchedCheckpoint();  // Removes the temporary folder.

  const std::string& path() const { return path_; }
  bool fetched() const { return !temporary_.empty(); }

 private:
  FetchedCheckpoint() = default;
  std::string path_, temporary_;
};

}  // namespace muster
