// Reads weights from files of other programs: from one safetensors file, or from several files with
// an index. Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor.h"

namespace muster::checkpoint {

// The tensors of one file. `foreign` has the names and types of the tensors whose type DType lacks,
// such as F8_E4M3.
struct WeightsFile {
  TensorSet set;
  ForeignTensors foreign;
};

// Reads the tensors at `path` and passes them to `take`, one file after the other. A WeightsFile
// owns the memory of its tensors. If `take` returns an error, ReadWeights stops and returns this
// error.
//
// `path` is a safetensors file, an index or a folder. An index is a file
// "...safetensors.index.json" with {"weight_map": {tensor: file}}. Only the tensors that the index
// assigns to a file are taken from that file. A folder contains "model.safetensors" or
// "model.safetensors.index.json". If a file is an export (export_file.h), only the tensors of its
// models are passed to `take`.
//
// Returns kNotFound if a file is missing, a DataError if a file is damaged, or another error of the
// file system.
absl::Status ReadWeights(FileSystem& files, const std::string& path,
                         const std::function<absl::Status(const WeightsFile&)>& take);

}  // namespace muster::checkpoint
