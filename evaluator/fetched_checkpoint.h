// A checkpoint that this process can read: at the path that the chief announced, or in a private
// temporary folder. The second is used if the path does not exist here or holds another checkpoint.
// The files are then fetched from the chief.
#pragma once

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "evaluator/chief_link.h"

namespace muster {

class FetchedCheckpoint {
 public:
  // Errors say why this checkpoint cannot be read. The reader must verify the checksums of the
  // files.
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
