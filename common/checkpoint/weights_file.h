// Reads tensors from files of other programs: one safetensors file, or several that an index names.
// Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor.h"

namespace muster::checkpoint {

// The tensors of one file. `foreign` has name and type of those whose type this version does not
// know (U32, F8_E4M3).
struct WeightsFile {
  TensorSet set;
  ForeignTensors foreign;
};

// Passes the tensors of `path` to `take`, one file after the other. The memory of a file's tensors
// belongs to its WeightsFile. `path` is a safetensors file, an index or a folder. An index is
// "...safetensors.index.json" with {"weight_map": {tensor: file}}, and each file gives the tensors
// that the index assigns to it. A folder holds "model.safetensors" or
// "model.safetensors.index.json". From an exported checkpoint (export_file.h) only the models are
// passed. The first error of `take` ends it.
//
// Returns kNotFound where there is no such file, a DataError where one is damaged, and otherwise
// the file system's errors.
absl::Status ReadWeights(FileSystem& files, const std::string& path,
                         const std::function<absl::Status(const WeightsFile&)>& take);

}  // namespace muster::checkpoint
