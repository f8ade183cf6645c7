// Reads the checkpoint that a command line selects.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

struct ChosenCheckpoint {
  std::string path;
  checkpoint::Snapshot snapshot;
  // True if training can resume from the checkpoint. False if it has only the weights of models.
  bool whole = true;
};

// Reads the checkpoint that `wanted` selects. "latest", "" and "best" select a checkpoint of
// `model_dir`, the folder of a run's output. The path of a model_dir or of its checkpoints folder
// selects the newest complete checkpoint there. Such a path with "/best" or "/latest" added selects
// the best or the latest checkpoint there. Any other path names one checkpoint or a safetensors
// file. Returns ConfigurationError if the checkpoint is missing, and DataError if the checkpoint is
// damaged.
absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const std::string& wanted,
                                                  const std::string& model_dir);

}  // namespace muster
