// Tensors of files that others wrote: one safetensors file, or several that an index names. Any
// thread.
#pragma once

#include <functional>
#include <string>

#include "common/checkpoint/file_system.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor.h"

namespace muster::checkpoint {

// Of one file; those whose type this version does not know (U32, F8_E4M3) by name and type alone.
struct WeightsFile {
  TensorSet set;
  ForeignTensors foreign;
};

// Hands over the tensors of `path`, one file after the other, whose memory goes with it: a
// safetensors file; an index ("...safetensors.index.json": {"weight_map": {tensor: file}}), of
// which each file gives the tensors that are its own; or a folder that holds "model.safetensors" or
// "model.safetensors.index.json". Of an exported checkpoint (export_file.h) the models alone. The
// first error that `take` returns ends it.
//
// kNotFound: there is no such file. DataError: one is damaged. Others are the file system's.
absl::Status ReadWeights(FileSystem& files, const std::string& path,
                         const std::function<absl::Status(const WeightsFile&)>& take);

}  // namespace muster::checkpoint
