// RunFolders writes the TensorBoard folders of a model_dir: train/, validation/, test/, eval/,
// system/. After a restart it removes the points of steps that will be trained again. Such points
// are void. Used by one thread at a time.
//
// A folder is created at the first write to it, so no folder is empty. A folder with files of an
// earlier process is opened at the start. Void points are thus removed even if this process never
// writes to that folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/summary/event_writer.h"
#include "common/train/membership.h"
#include "muster/status.h"

namespace muster::chief {

class RunFolders {
 public:
  struct Options {
    std::string model_dir;
    std::function<absl::Status()> fence, check_disk;  // EventWriter::Options::fence, check_disk.
  };
  explicit RunFolders(Options options) : options_(std::move(options)) {}

  // Called when training starts at the step of `report`, or resumes there after a loss. Later
  // points become void.
  absl::Status OnStart(const StartReport& report);

  // Returns the writer for `folder` and opens it if needed. `step` is the step of the next write.
  // REQUIRES: OnStart was called.
  absl::StatusOr<summary::EventWriter*> At(const std::string& folder, int64_t step);
  // Returns the highest step that this process wrote to `folder`, -1 if none.
  int64_t last_step(const std::string& folder) const;

  // Returns the step of the last valid point of `tag` in `folder`, -1 if none. The point may be
  // from an earlier process. Reads the folder's files.
  int64_t LastStepOf(const std::string& folder, const std::string& tag);

  // Flush and Sync handle all folders and return the first error.
  absl::Status Flush();
  absl::Status Sync();

 private:
  struct Folder {
    int64_t first_step = 1;  // Points from this step on are void.
    int64_t last_step = -1;
    std::unique_ptr<summary::EventWriter> writer;
  };
  absl::Status Open(const std::string& name, Folder* folder);

  const Options options_;
  std::map<std::string, Folder> folders_;
};

}  // namespace muster::chief
