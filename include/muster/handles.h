// Handles of the objects that a program declares in build(), and the splits of the program's data.
#pragma once

namespace muster {

enum class Split { kTrain = 0, kValidation, kTest };
const char* SplitName(Split split);  // "train", "validation", "test"

// Functions of Builder return these handles. Functions of Step, Evaluation and Loop take them. Each
// replica (device) has its own handles, which are valid as long as the replica exists.
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
