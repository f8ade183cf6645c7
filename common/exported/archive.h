// Reads a file of torch.export.save: the program as JSON, and its parameters, buffers and
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

// Returns the zip format of such a file: uncompressed members, all in one folder.
inline ZipOptions ArchiveZip() {
  return {.without_folder = true, .only_stored = true, .kind = "torch.export.save writes"};
}

// The major schema version of torch 2.11 (SCHEMA_VERSION in torch/_export/serde/schema.py). Another
// major version is incompatible.
inline constexpr int64_t kSchemaMajor = 8;
inline constexpr std::string_view kProgramFile = "models/", kWeightsFolder = "data/weights/",
                                  kConstantsFolder = "data/constants/";

// Describes a tensor in the file: a view of a storage. Several tensors may share one storage.
struct Payload {
  std::string file;  // The member of the archive that has the storage.
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // The offset in the storage, in elements.
  bool is_parameter = false;
  bool requires_grad = false;
};

struct Archive {
  std::string path;
  std::string model;  // The model's name in the file.
  Json program;       // An ExportedProgram of torch's schema.
  // The keys are the names in Python (state_dict). Tensors are on the CPU. Names of tied weights,
  // which share one tensor in Python, share one tensor here. All other tensors have memory of their
  // own.
  std::map<std::string, Payload> weight_payloads;
  std::map<std::string, at::Tensor> weights, constants;
};

// Reads an archive. `model` selects one of several models in the file, and "" selects the only
// model. Returns a DataError if the file is damaged. Returns a ConfigurationError if the file is of
// another kind (TorchScript, a state_dict, another schema version, overlapping tensors).
// Thread-safe.
absl::StatusOr<Archive> ReadArchive(const std::string& path, const std::string& model);

// Converts a type number of torch's schema. Throws c10::Error if the number is unknown.
at::ScalarType ScalarTypeOfSchema(int64_t number);

// Returns the tensor that `payload` describes, as a view of `storage`, a flat tensor of all bytes
// of the storage. REQUIRES: CheckPayload returned OK.
at::Tensor ViewOf(const at::Tensor& storage, const Payload& payload);
// Returns OK if a storage of `bytes` bytes contains the payload. The error message is a clause with
// the reason.
absl::Status CheckPayload(const Payload& payload, int64_t bytes);

}  // namespace muster::exported
