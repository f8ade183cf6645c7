// The checkpoint that a command line names.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

struct ChosenCheckpoint {
  std::string path;  // of the one that was read
  checkpoint::Snapshot snapshot;
  // All that training goes on from; else it is a file with models alone.
  bool whole = true;
};

// `wanted` is "latest" (or empty) or "best", of `model_dir`; a model_dir or its checkpoints folder,
// whose newest whole checkpoint it is; one of these with "/best" or "/latest"; one checkpoint; or a
// safetensors file. ConfigurationErrors say what is not there, DataErrors what is damaged.
absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const std::string& wanted,
                                                  const std::string& model_dir);

}  // namespace muster
