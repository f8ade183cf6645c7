// Reads the checkpoint that a command line selects.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

struct ChosenCheckpoint {
  std::string path;  // The path of the checkpoint.
  checkpoint::Snapshot snapshot;
  // True if training can resume from the checkpoint. False for a file with only models.
  bool whole = true;
};

// Reads the checkpoint that `wanted` selects. "latest" (or empty) and "best" refer to `model_dir`.
// The path of a model_dir or of its checkpoints folder selects the newest complete checkpoint. The
// same path with "/best" or "/latest" selects the best or latest one. Any other path is a single
// checkpoint or a safetensors file. Returns ConfigurationError for a missing checkpoint, DataError
// for a damaged one.
absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const std::string& wanted,
                                                  const std::string& model_dir);

}  // namespace muster
