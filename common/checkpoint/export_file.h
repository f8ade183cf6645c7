// Writes and reads an export: a checkpoint as one safetensors file, for other programs (`muster
// export`). Slots are an optimizer's state for each parameter. The tensors of an export are:
//
//   <name>                  the tensors of model.safetensors
//   optimizer/<name>        the tensors of optimizer.safetensors, if exported with slots
//   replica_buffers/<name>  the tensors of replica_buffers.safetensors, if exported with slots
//
// The metadata of an export are these texts:
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

// Writes the export to a temporary file in the folder of `path`, then renames it to `path`. If
// `slots` is true, also exports slots. Returns InvalidArgument if a tensor of a model has a
// reserved prefix ("optimizer/", "replica_buffers/"), or an error of the file system.
absl::Status WriteExport(FileSystem& files, const Snapshot& snapshot, bool slots,
                         const std::string& path);

// Writes any tensors as a safetensors file: writes a temporary file, then renames it to `path`.
absl::Status WriteTensors(FileSystem& files, const TensorSet& set, const Metadata& metadata,
                          const std::string& path);

struct Export {
  // If another program wrote the file, all its tensors are in snapshot.model, and the step is 0.
  Snapshot snapshot;
  bool ours = false;   // True if WriteExport wrote the file.
  bool slots = false;  // True if the file has slots.
};
// Reads an export or another safetensors file. Returns a DataError that says what is damaged, or an
// error of the file system.
absl::StatusOr<Export> ReadExport(FileSystem& files, const std::string& path);

// Returns whether `path` ends in ".safetensors".
bool NamesExport(const std::string& path);
// Returns whether the metadata of a safetensors file show that WriteExport wrote it.
bool IsExport(const Metadata& metadata);
// Removes the slots and replica buffers of an export from the set.
void RetainModels(TensorSet* set);

}  // namespace muster::checkpoint
