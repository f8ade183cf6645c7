// Reads a file that torch.export.save wrote. Such a file is a zip archive with the program as JSON,
// and with the program's parameters, buffers and constants. docs/exported.md lists the supported
// files. In this folder, "the schema" is torch/_export/serde/schema.py, which defines the JSON.
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

// Returns the zip format of torch.export.save: uncompressed members, all in one folder.
inline ZipOptions ArchiveZip() {
  return {.without_folder = true, .only_stored = true, .kind = "torch.export.save writes"};
}

// The major version of the schema in torch 2.11 (SCHEMA_VERSION). Other major versions are
// incompatible.
inline constexpr int64_t kSchemaMajor = 8;
// Folders in the archive.
inline constexpr std::string_view kProgramFile = "models/", kWeightsFolder = "data/weights/",
                                  kConstantsFolder = "data/constants/";

// Describes a tensor of the archive as a view of a storage. A storage consists of the bytes of one
// member of the archive. Several tensors may share one storage.
struct Payload {
  std::string file;  // The name of the member that has the storage.
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // The position of the tensor's first element in the storage, in elements.
  bool is_parameter = false;
  bool requires_grad = false;
};

struct Archive {
  std::string path;
  std::string model;  // The model's name in the file.
  Json program;       // An ExportedProgram of the schema.
  // The keys of these maps are the names in Python's state_dict(). All tensors are on the CPU. Tied
  // weights are one tensor with several names, as in Python. All other tensors have separate
  // memory.
  std::map<std::string, Payload> weight_payloads;
  std::map<std::string, at::Tensor> weights, constants;
};

// Reads an archive. `model` is the name of a model in the file. "" selects the only model. Returns
// a DataError if the file is damaged. Returns a ConfigurationError if the file is not supported:
// TorchScript, a state_dict, another schema version, parameters whose memory overlaps, or an
// unknown or ambiguous `model`. Thread-safe.
absl::StatusOr<Archive> ReadArchive(const std::string& path, const std::string& model);

// Converts a number of the schema's enum ScalarType. Throws c10::Error if the number is unknown.
at::ScalarType ScalarTypeOfSchema(int64_t number);

// Returns the tensor that `payload` describes, as a view of `storage`. `storage` has the type uint8
// and one dimension. REQUIRES: CheckPayload returned OK.
at::Tensor ViewOf(const at::Tensor& storage, const Payload& payload);
// Returns OK if the payload is valid and lies within a storage of `bytes` bytes. The message is the
// rest of a sentence about the tensor, such as "needs 10 elements of 4 bytes, ...".
absl::Status CheckPayload(const Payload& payload, int64_t bytes);

}  // namespace muster::exported
