// Reads a file that torch.export.save wrote: the program as JSON, its parameters, buffers and
// constants. docs/exported.md lists the supported files.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files/zip.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// The archives are zip files of stored members, all in one folder.
inline ZipOptions ArchiveZip() {
  return {.without_folder = true, .only_stored = true, .kind = "torch.export.save writes"};
}

// The schema version that torch 2.11 writes: torch/_export/serde/schema.py, SCHEMA_VERSION. A new
// major number there is a breaking change.
inline constexpr int64_t kSchemaMajor = 8;
inline constexpr std::string_view kProgramFile = "models/", kWeightsFolder = "data/weights/",
                                  kConstantsFolder = "data/constants/";

// A tensor's place in the file: a view of a whole storage, which several tensors may share.
struct Payload {
  std::string file;  // The member of the archive.
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // In elements.
  bool is_parameter = false;
  bool requires_grad = false;
};

struct Archive {
  std::string path;
  std::string model;  // Its name in the file.
  Json program;       // torch's ExportedProgram.
  // By their names in Python (state_dict). Names that share one tensor in Python (tied weights)
  // share one here. All other tensors own their memory. On the CPU.
  std::map<std::string, Payload> weight_payloads;
  std::map<std::string, at::Tensor> weights, constants;
};

// `model` selects one of several models in a file. "" stands for the only one. Returns a DataError
// for a damaged file. Returns a ConfigurationError for another kind of file (TorchScript, a
// state_dict, another schema version, tensors that overlap). Thread-safe.
absl::StatusOr<Archive> ReadArchive(const std::string& path, const std::string& model);

// Converts the type numbers of torch's schema. Throws c10::Error for an unknown number.
at::ScalarType ScalarTypeOfSchema(int64_t number);

// Returns a payload's view of `storage`, a flat tensor with all bytes of a storage. REQUIRES: the
// storage contains the payload (CheckPayload).
at::Tensor ViewOf(const at::Tensor& storage, const Payload& payload);
// Returns OK where a storage of `bytes` bytes contains the payload. The error is a clause that says
// why not.
absl::Status CheckPayload(const Payload& payload, int64_t bytes);

}  // namespace muster::exported
