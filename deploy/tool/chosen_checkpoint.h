// The checkpoint that a command line selects.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

struct ChosenCheckpoint {
  std::string path;  // The path of the checkpoint that was read.
  checkpoint::Snapshot snapshot;
  // True if training can resume from it. False: a file with models only.
  bool whole = true;
};

// Reads the checkpoint that `wanted` selects. "latest" (or empty) and "best" refer to `model_dir`.
// A path to a model_dir or its checkpoints folder selects the newest complete checkpoint. With
// "/best" or "/latest" appended it selects that one. Other paths are a single checkpoint or a
// safetensors file. Returns ConfigurationErrors for missing checkpoints, DataErrors for damaged
// ones.
absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const std::string& wanted,
                                                  const std::string& model_dir);

}  // namespace muster
