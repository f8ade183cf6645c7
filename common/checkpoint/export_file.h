// A checkpoint as one safetensors file, to be handed on (`muster export`):
//
//   <name>                  of model.safetensors: the program's models
//   optimizer/<name>        of optimizer.safetensors, where slots were asked for
//   replica_buffers/<name>  of replica_buffers.safetensors, likewise
//
// with metadata (texts): "muster" and "libtorch", the versions that wrote the checkpoint; "program"
// and "program_args", JSON; "step"; "slots", "true" or "false"; and "state", the checkpoint's
// state.json, by which training goes on.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/safetensors.h"

namespace muster::checkpoint {

// Written beside `path` first, then moved there by one rename. Errors are the file system's, and an
// InvalidArgument where a model has a name that is taken here.
absl::Status WriteExport(FileSystem& files, const Snapshot& snapshot, bool slots,
                         const std::string& path);

// Any tensors likewise.
absl::Status WriteTensors(FileSystem& files, const TensorSet& set, const Metadata& metadata,
                          const std::string& path);

struct Export {
  Snapshot snapshot;  // of a file that others wrote: its tensors are the model, and step is 0
  bool ours = false;  // WriteExport wrote it
  bool slots = false;
};
// A DataError says what is damaged; other errors are the file system's.
absl::StatusOr<Export> ReadExport(FileSystem& files, const std::string& path);

// Whether a path is to be read by ReadExport, by its name: "....safetensors".
bool NamesExport(const std::string& path);
// By the metadata of a safetensors file: WriteExport wrote it.
bool IsExport(const Metadata& metadata);
// Leaves what is no model's out.
void KeepModels(TensorSet* set);

}  // namespace muster::checkpoint
