// The handles that build() returns and steps take, and the names of splits.
#pragma once

namespace muster {

enum class Split { kTrain = 0, kValidation, kTest };
const char* SplitName(Split split);  // "train", "validation", "test"

// Handles that build() returns and steps take. Valid as long as the replica exists.
struct OptimizerHandle {
  int index = -1;
};
struct MetricHandle {
  int index = -1;
};
struct EmbeddingHandle {
  int index = -1;
};
struct DatasetHandle {
  int index = -1;
};

}  // namespace muster
