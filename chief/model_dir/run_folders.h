// The TensorBoard run folders of a model_dir: train/, validation/, test/, eval/. Removes the points
// that a restart makes void. Used by one thread at a time.
//
// A folder is created at the first write to it, so that none is empty. If an earlier process left
// files in a folder, it is opened at the start. InvalidateWork points are thus removed even if this
// process never writes to that folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/summary/event_writer.h"
#include "common/train/membership.h"
#include "muster/status.h"

namespace muster {

class RunFolders {
 public:
  struct Options {
    std::string model_dir;
    std::function<absl::Status()> fence, check_disk;  // See summary::EventWriter.
  };
  explicit RunFolders(Options options) : options_(std::move(options)) {}

  // Training starts, or resumes after a loss, at `report`'s step. Later points are void.
  absl::Status OnStart(const StartReport& report);

  // Returns the writer for `folder` and opens it if needed. `step` is the step of the next write.
  // REQUIRES: OnStart.
  absl::StatusOr<summary::EventWriter*> At(const std::string& folder, int64_t step);
  // Returns the highest step that this process wrote to `folder`, -1 if none.
  int64_t last_step(const std::string& folder) const;

  // Returns the last step that is not void at which this or an earlier process wrote `tag` to
  // `folder`, -1 if none. Reads the folder's files.
  int64_t LastStepOf(const std::string& folder, const std::string& tag);

  // Both handle all folders and return the first error.
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

}  // namespace muster
