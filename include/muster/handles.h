// Handles of the objects that a program declares in build(), and the splits of its data.
#pragma once

namespace muster {

enum class Split { kTrain = 0, kValidation, kTest };
const char* SplitName(Split split);  // "train", "validation", "test"

// Builder returns these handles, and Step, Evaluation and Loop take them. A handle is valid as long
// as the replica exists.
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
