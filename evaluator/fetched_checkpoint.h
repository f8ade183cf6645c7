// A FetchedCheckpoint is a checkpoint in a folder that this process can read. The chief announces
// the path of the checkpoint. If the announced checkpoint is at this path on this host, path()
// returns this path. Otherwise the checkpoint's files are fetched from the chief into a private
// temporary folder.
#pragma once

#include <string>

#include "common/checkpoint/files/file_system.h"
#include "evaluator/chief_link.h"

namespace muster::evaluator {

class FetchedCheckpoint {
 public:
  // Finds or fetches the checkpoint. Does not verify the checksums of the files: the caller must
  // verify the checksums.
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
