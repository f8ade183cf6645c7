// The TensorBoard run folders of a model_dir: train/, validation/, test/, eval/. Knows what a
// restart makes void in each of them. For one thread at a time.
//
// A folder is made when something is first written to it, so that there are no empty ones. Where an
// earlier process left files in it, it is opened at the start already: what the restart takes back
// must go, also where this process never comes to write there.
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
    std::function<absl::Status()> fence, check_disk;  // summary::EventWriter's
  };
  explicit RunFolders(Options options) : options_(std::move(options)) {}

  // Training begins, or begins again after a loss, at `report`'s step: later points are void.
  absl::Status OnStart(const StartReport& report);

  // Something is going to be written to `folder` at `step`; opens it. REQUIRES: OnStart.
  absl::StatusOr<summary::EventWriter*> At(const std::string& folder, int64_t step);
  // The step of what this process wrote last to `folder`; -1: nothing.
  int64_t last_step(const std::string& folder) const;

  // The last step at which `tag` was written to `folder`, by this process or one before it, and is
  // not void; -1: never. Reads the folder's files.
  int64_t LastStepOf(const std::string& folder, const std::string& tag);

  // Of all folders; the first error.
  absl::Status Flush();
  absl::Status Sync();

 private:
  struct Folder {
    int64_t first_step = 1;  // what is there from this one on is void
    int64_t last_step = -1;
    std::unique_ptr<summary::EventWriter> writer;
  };
  absl::Status Open(const std::string& name, Folder* folder);

  const Options options_;
  std::map<std::string, Folder> folders_;
};

}  // namespace muster
