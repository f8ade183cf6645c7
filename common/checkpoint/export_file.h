// A checkpoint as one safetensors file, for use elsewhere (`muster export`):
//
//   <name>                  of model.safetensors: the program's models
//   optimizer/<name>        of optimizer.safetensors, where slots were asked for
//   replica_buffers/<name>  of replica_buffers.safetensors, where slots were asked for
//
// Its metadata are texts:
//
//   muster, libtorch        the versions that wrote the checkpoint
//   program, program_args   JSON
//   step
//   slots                   "true" or "false"
//   state                   the checkpoint's state.json, from which training resumes
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/files/file_system.h"
#include "common/checkpoint/safetensors.h"

namespace muster::checkpoint {

// Writes a file beside `path` and moves it there by one rename. Returns the file system's errors,
// and InvalidArgument where a model has a name that is reserved here.
absl::Status WriteExport(FileSystem& files, const Snapshot& snapshot, bool slots,
                         const std::string& path);

// Writes any tensors in the same way.
absl::Status WriteTensors(FileSystem& files, const TensorSet& set, const Metadata& metadata,
                          const std::string& path);

struct Export {
  // For a file that another program wrote, its tensors are the model and step is 0.
  Snapshot snapshot;
  bool ours = false;  // True where WriteExport wrote the file.
  bool slots = false;
};
// A DataError says what is damaged. Other errors are the file system's.
absl::StatusOr<Export> ReadExport(FileSystem& files, const std::string& path);

// True where the name of `path` ends in ".safetensors", so that ReadExport reads it.
bool NamesExport(const std::string& path);
// True where the metadata of a safetensors file show that WriteExport wrote it.
bool IsExport(const Metadata& metadata);
// Removes the tensors that belong to no model.
void KeepModels(TensorSet* set);

}  // namespace muster::checkpoint
