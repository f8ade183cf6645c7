// A FetchedCheckpoint is a checkpoint in a folder that this process can read. If the path that the
// chief has announced exists on this host and has the announced checkpoint, this path is the
// folder. Otherwise the folder is a private temporary one with files that were fetched from the
// chief.
#pragma once

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "evaluator/chief_link.h"

namespace muster::evaluator {

class FetchedCheckpoint {
 public:
  // Finds or fetches the checkpoint. Does not verify the checksums of the files, which the caller
  // must do.
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
