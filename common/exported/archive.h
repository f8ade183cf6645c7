// What torch.export.save wrote, read whole: the program as JSON, its parameters, buffers and
// constants. docs/exported.md says which files are read.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/zip.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// The archives are zip files of stored members, all in one folder.
inline ZipOptions ArchiveZip() {
  return {.without_folder = true, .only_stored = true, .kind = "torch.export.save writes"};
}

// What torch 2.11 writes: torch/_export/serde/schema.py, SCHEMA_VERSION. A major number is a
// breaking change there.
inline constexpr int64_t kSchemaMajor = 8;
inline constexpr std::string_view kProgramFile = "models/", kWeightsFolder = "data/weights/",
                                  kConstantsFolder = "data/constants/";

// Where the bytes of a tensor lie: a view of a whole storage, which several tensors may share.
struct Payload {
  std::string file;  // the member of the archive
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // in elements
  bool is_parameter = false;
  bool requires_grad = false;
};

struct Archive {
  std::string path;
  std::string model;  // its name in the file
  Json program;       // torch's ExportedProgram
  // By their names in Python (state_dict). Names that are one tensor in Python (tied weights) are
  // one here; all others own their memory. On the CPU.
  std::map<std::string, Payload> weight_payloads;
  std::map<std::string, at::Tensor> weights, constants;
};

// `model` chooses one of several in a file; "": the only one. Errors: a DataError for a damaged
// file, a ConfigurationError for one that is something else (TorchScript, a state_dict, another
// schema version, tensors that overlap). Any thread.
absl::StatusOr<Archive> ReadArchive(const std::string& path, const std::string& model);

// The numbers that torch's schema has for types; throws c10::Error where there is none.
at::ScalarType ScalarTypeOfSchema(int64_t number);

// `bytes` of a whole storage as a flat tensor of its own memory, and the view of it that a payload
// is. REQUIRES: the storage holds it (CheckPayload).
at::Tensor ViewOf(const at::Tensor& storage, const Payload& payload);
// An error says why a storage of so many bytes does not hold it, as a clause.
absl::Status CheckPayload(const Payload& payload, int64_t bytes);

}  // namespace muster::exported
