// A FetchedCheckpoint is a checkpoint that this process can read. It is at the path that the chief
// announced, if that checkpoint exists here. Otherwise its files are fetched from the chief into a
// private temporary folder.
#pragma once

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "evaluator/chief_link.h"

namespace muster::evaluator {

class FetchedCheckpoint {
 public:
  // Returns an error that says why the checkpoint cannot be read. Does not verify the files'
  // checksums, which the reader must do.
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

}  // namespace muster::evaluator
