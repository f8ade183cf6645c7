// RunFolders writes the TensorBoard folders of a model_dir: train/, validation/, test/, eval/,
// system/. A run that resumes from a checkpoint trains some steps again. RunFolders removes the
// void points: those that were written for these steps before. Used by one thread at a time.
//
// RunFolders creates a folder at the first write to it, so no folder is empty. The first call of
// OnStart opens each folder that an earlier process has left. OnStart therefore removes void points
// even from folders to which this process never writes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/summary/event_writer.h"
#include "common/train/observer.h"
#include "muster/status.h"

namespace muster::chief {

class RunFolders {
 public:
  struct Options {
    std::string model_dir;
    // Called by the EventWriters before each write (EventWriter::Options). The write fails with the
    // returned error.
    std::function<absl::Status()> fence, check_disk;
  };
  explicit RunFolders(Options options) : options_(std::move(options)) {}

  // Called when training starts or resumes at the step of `report`. Points of later steps become
  // void. If a validation or test pass is due, its points of this step become void too.
  absl::Status OnStart(const StartReport& report);

  // Returns the writer for `folder` and opens it if needed. `step` is the step of the next write.
  // REQUIRES: OnStart was called.
  absl::StatusOr<summary::EventWriter*> At(const std::string& folder, int64_t step);
  // Returns the highest step passed to At since `folder` was last opened, -1 if none.
  int64_t last_step(const std::string& folder) const;

  // Reads the files of `folder`, and returns the step of the last point of `tag` that is not void.
  // Returns -1 if there is no such point. An earlier process may have written the point.
  int64_t LastStepOf(const std::string& folder, const std::string& tag);

  // Flush and sync the files of all folders. Return the first error.
  absl::Status Flush();
  absl::Status Sync();

 private:
  struct Folder {
    // When the folder is opened, the points of this step and of later steps are void.
    int64_t first_step = 1;
    int64_t last_step = -1;  // The highest step passed to At since the opening, -1 if none.
    std::unique_ptr<summary::EventWriter> writer;
  };
  absl::Status Open(const std::string& name, Folder* folder);

  const Options options_;
  std::map<std::string, Folder> folders_;
};

}  // namespace muster::chief
