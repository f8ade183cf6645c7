#include "common/exported/graph/archive.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/json/json_integer.h"

namespace muster::exported {
namespace {

constexpr char kFix[] = "export the model with torch.export.export and torch.export.save";

// Calls `function`, which reads fields of a JSON member with at(). Returns a DataError if a field
// is missing or has a wrong type.
template <typename Function>
absl::Status ReadFields(const std::string& path, const std::string& member, Function read) {
  try {
    read();
    return absl::OkStatus();
  } catch (const Json::exception& error) {
    return DataError(fmt::format("{} is damaged: {}: {}", path, member, error.what()));
  } catch (const c10::Error& error) {
    return DataError(
        fmt::format("{} is damaged: {}: {}", path, member, error.what_without_backtrace()));
  }
}

absl::StatusOr<Json> ReadJson(const ZipReader& zip, const std::string& member) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, zip.ReadText(member));
  absl::StatusOr<Json> json = ParseJson(text, member);
  if (!json.ok())
    return DataError(fmt::format("{} is damaged: {}", zip.path(), Message(json.status())));
  if (!json->is_object())
    return DataError(fmt::format("{} is damaged: {} is no JSON object", zip.path(), member));
  return json;
}

bool HasFolder(const ZipReader& zip, std::string_view folder) {
  return std::any_of(zip.names().begin(), zip.names().end(),
                     [&](const std::string& name) { return name.starts_with(folder); });
}

// Returns an error for other kinds of zip archives that LibTorch and Python write.
absl::Status CheckKind(const ZipReader& zip) {
  const auto refuse = [&](std::string_view what, std::string_view fix) {
    return ConfigurationError(fmt::format("{} is {}: {}", zip.path(), what, fix));
  };
  if (HasFolder(zip, kProgramFile)) return absl::OkStatus();
  if (zip.Has("constants.pkl") || HasFolder(zip, "code/")) {
    return refuse("TorchScript, which PyTorch deprecated in 2.11", kFix);
  }
  if (zip.Has("serialized_exported_program.json")) {
    return refuse("of an older torch.export.save",
                  "load it with torch.export.load and save it again with torch 2.11");
  }
  if (HasFolder(zip, "data/aotinductor/")) {
    return refuse("compiled by AOTInductor, without the program that would train", kFix);
  }
  if (zip.Has("data.pkl")) return refuse("what torch.save wrote, tensors without a program", kFix);
  return refuse("a zip archive without an exported program", kFix);
}

absl::StatusOr<std::string> ChooseModel(const ZipReader& zip, const std::string& wanted) {
  std::vector<std::string> models;
  for (const std::string& name : zip.names()) {
    if (!name.starts_with(kProgramFile) || !name.ends_with(".json")) continue;
    models.push_back(name.substr(kProgramFile.size(), name.size() - kProgramFile.size() - 5));
  }
  const auto list = [&] { return fmt::format("{}", fmt::join(models, ", ")); };
  if (!wanted.empty()) {
    if (std::count(models.begin(), models.end(), wanted) > 0) return wanted;
    return ConfigurationError(
        fmt::format("{} holds no model \"{}\", but {}", zip.path(), wanted, list()));
  }
  if (models.size() == 1) return models[0];
  if (models.empty()) {
    return DataError(fmt::format("{} is damaged: models/*.json is missing", zip.path()));
  }
  return ConfigurationError(
      fmt::format("{} holds several models, {}: set \"model\" beside \"exported\" to one of them",
                  zip.path(), list()));
}

absl::Status CheckVersions(const ZipReader& zip, const Json& program) {
  if (zip.Has("byteorder")) {
    MUSTER_ASSIGN_OR_RETURN(const std::string order, zip.ReadText("byteorder"));
    if (order != "little") {
      return ConfigurationError(
          fmt::format("{} was written on a {}-endian machine: write it on a little-endian one",
                      zip.path(), order));
    }
  }
  int64_t major = 0, minor = 0;
  std::string torch = "an unknown version";
  MUSTER_RETURN_IF_ERROR(ReadFields(zip.path(), "schema_version", [&] {
    major = JsonInteger(program.at("schema_version").at("major"));
    minor = JsonInteger(program.at("schema_version").at("minor"));
    torch = program.value("torch_version", torch);
  }));
  if (major == kSchemaMajor) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "{} has schema version {}.{}, of torch {}, and this Muster reads {}.x: write it with the "
      "torch that this Muster was built with, 2.11",
      zip.path(), major, minor, torch, kSchemaMajor));
}

std::vector<int64_t> Numbers(const Json& list) {
  std::vector<int64_t> numbers;
  for (const Json& item : list) numbers.push_back(JsonInteger(item.at("as_int")));
  return numbers;
}

Payload PayloadOf(const Json& entry, std::string_view folder) {
  const Json& meta = entry.at("tensor_meta");
  Payload payload;
  payload.file = std::string(folder) + entry.at("path_name").get<std::string>();
  payload.dtype = ScalarTypeOfSchema(JsonInteger(meta.at("dtype")));
  payload.sizes = Numbers(meta.at("sizes"));
  payload.strides = Numbers(meta.at("strides"));
  payload.offset = JsonInteger(meta.at("storage_offset").at("as_int"));
  payload.is_parameter = entry.at("is_param").get<bool>();
  payload.requires_grad = meta.at("requires_grad").get<bool>();
  constexpr int64_t kStrided = 7;
  TORCH_CHECK(int64_t{JsonInteger(meta.at("layout"))} == kStrided, "a tensor is sparse");
  return payload;
}

// Returns the index after the last element of the storage that the payload uses, or -1 after an
// overflow.
int64_t Extent(const Payload& payload) {
  __int128 last = payload.offset;
  for (size_t d = 0; d < payload.sizes.size(); ++d) {
    if (payload.sizes[d] == 0) return payload.offset;
    last += static_cast<__int128>(payload.sizes[d] - 1) * payload.strides[d];
    if (last > INT64_MAX / 32) return -1;
  }
  return static_cast<int64_t>(last) + 1;
}

// Returns the size of a dense copy in bytes. Returns nullopt if the size or a stride overflows.
std::optional<int64_t> CopiedBytes(const Payload& payload) {
  auto bytes = static_cast<int64_t>(c10::elementSize(payload.dtype));
  bool empty = false;
  for (const int64_t size : payload.sizes) {
    empty |= size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

bool SameView(const Payload& a, const Payload& b) {
  return a.file == b.file && a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides &&
         a.offset == b.offset;
}

// Reads the tensors of one folder of an archive. The folder's config lists them.
class PayloadReader {
 public:
  PayloadReader(const ZipReader& zip, std::string folder) : zip_(zip), folder_(std::move(folder)) {}

  absl::Status ReadConfig(const std::string& model) {
    const std::string member = fmt::format("{}{}_{}_config.json", folder_, model,
                                           folder_ == kWeightsFolder ? "weights" : "constants");
    if (zip_.Has(fmt::format("{}{}.pt", folder_, model))) {
      return ConfigurationError(fmt::format(
          "{} is of an older torch.export.save: load it with torch.export.load and save "
          "it again with torch 2.11",
          zip_.path()));
    }
    MUSTER_ASSIGN_OR_RETURN(const Json config, ReadJson(zip_, member));
    std::string refused;
    MUSTER_RETURN_IF_ERROR(ReadFields(zip_.path(), member, [&] {
      for (const auto& [name, entry] : config.at("config").items()) {
        if (entry.at("use_pickle").get<bool>()) {
          if (refused.empty()) refused = name;
        } else {
          payloads.emplace(name, PayloadOf(entry, folder_));
        }
      }
    }));
    if (refused.empty()) return absl::OkStatus();
    return ConfigurationError(fmt::format(
        "{}: \"{}\" is an object of a Python class (a tensor subclass or a script object), which "
        "only Python can load: replace it by a plain tensor",
        zip_.path(), refused));
  }

  absl::Status ReadTensors(std::map<std::string, at::Tensor>* tensors) {
    std::map<std::string, std::vector<std::string>> by_file;
    for (const auto& [name, payload] : payloads) by_file[payload.file].push_back(name);
    absl::Status read;
    MUSTER_RETURN_IF_ERROR(ReadFields(zip_.path(), "its tensors", [&] {
      for (const auto& [file, names] : by_file)
        if (read.ok()) read = ReadViews(file, names, tensors);
    }));
    return read;
  }

  std::map<std::string, Payload> payloads;

 private:
  // Reads the tensors that are views of the bytes of one file.
  absl::Status ReadViews(const std::string& file, const std::vector<std::string>& names,
                         std::map<std::string, at::Tensor>* tensors) {
    MUSTER_ASSIGN_OR_RETURN(const at::Tensor storage, ReadStorage(file));
    left_ += storage.numel();
    for (size_t i = 0; i < names.size(); ++i) {
      const Payload& payload = payloads.at(names[i]);
      if (absl::Status held = CheckPayload(payload, storage.numel()); !held.ok()) {
        return DataError(
            fmt::format("{} is damaged: \"{}\" {}", zip_.path(), names[i], Message(held)));
      }
      at::Tensor tensor;
      for (size_t j = 0; j < i; ++j) {
        const Payload& other = payloads.at(names[j]);
        if (SameView(payload, other)) {
          if (payload.is_parameter != other.is_parameter) return Overlap(names[i], names[j]);
          tensor = tensors->at(names[j]);
          break;
        }
        const bool disjoint = Extent(payload) <= other.offset || Extent(other) <= payload.offset;
        if (!disjoint && (payload.is_parameter || other.is_parameter)) {
          return Overlap(names[i], names[j]);
        }
      }
      if (!tensor.defined()) {
        left_ -= CopiedBytes(payload).value_or(INT64_MAX / 2);
        if (left_ < 0) {
          return DataError(
              fmt::format("{} is damaged: with \"{}\" its tensors take far more bytes than it has",
                          zip_.path(), names[i]));
        }
        tensor = ViewOf(storage, payload).clone();
      }
      tensors->emplace(names[i], std::move(tensor));
    }
    return absl::OkStatus();
  }
  absl::Status Overlap(const std::string& name, const std::string& other) const {
    return ConfigurationError(
        fmt::format("{}: \"{}\" and \"{}\" are different views of the same memory, of which one is "
                    "trained: give "
                    "each its own (tied weights, one parameter under two names, are fine)",
                    zip_.path(), name, other));
  }

  absl::StatusOr<at::Tensor> ReadStorage(const std::string& file) const {
    if (!zip_.Has(file)) {
      return DataError(fmt::format("{} is damaged: {} is missing", zip_.path(), file));
    }
    const at::Tensor storage = at::empty({zip_.Size(file)}, at::kByte);
    MUSTER_RETURN_IF_ERROR(zip_.Read(file, storage.mutable_data_ptr()));
    return storage;
  }

  const ZipReader& zip_;
  const std::string folder_;
  // The number of bytes left for tensors: the size of the files plus 1 GiB. The 1 GiB is for
  // expanded tensors and overlapping views, because each tensor gets memory of its own.
  int64_t left_ = int64_t{1} << 30;
};

}  // namespace

at::ScalarType ScalarTypeOfSchema(int64_t number) {
  // The numbers of class ScalarType in torch/_export/serde/schema.py.
  static const std::map<int64_t, at::ScalarType> kTypes = {
      {1, at::kByte},
      {2, at::kChar},
      {3, at::kShort},
      {4, at::kInt},
      {5, at::kLong},
      {6, at::kHalf},
      {7, at::kFloat},
      {8, at::kDouble},
      {9, at::kComplexHalf},
      {10, at::kComplexFloat},
      {11, at::kComplexDouble},
      {12, at::kBool},
      {13, at::kBFloat16},
      {28, at::kUInt16},
      {29, at::kFloat8_e4m3fn},
      {30, at::kFloat8_e5m2},
      {31, at::kFloat8_e4m3fnuz},
      {32, at::kFloat8_e5m2fnuz},
  };
  const auto found = kTypes.find(number);
  TORCH_CHECK(found != kTypes.end(), "there is no type with the number ", number);
  return found->second;
}

absl::Status CheckPayload(const Payload& payload, int64_t bytes) {
  const auto bad = [](int64_t n) { return n < 0; };
  if (!CopiedBytes(payload) || payload.sizes.size() != payload.strides.size() ||
      payload.offset < 0 || std::any_of(payload.sizes.begin(), payload.sizes.end(), bad) ||
      std::any_of(payload.strides.begin(), payload.strides.end(), bad)) {
    return DataError("has sizes and strides that do not fit together");
  }
  const int64_t extent = Extent(payload);
  const auto item = static_cast<int64_t>(c10::elementSize(payload.dtype));
  if (extent >= 0 && extent <= bytes / item) return absl::OkStatus();
  return DataError(fmt::format("needs {} elements of {} bytes, and {} holds {} bytes", extent, item,
                               payload.file, bytes));
}

at::Tensor ViewOf(const at::Tensor& storage, const Payload& payload) {
  const auto item = static_cast<int64_t>(c10::elementSize(payload.dtype));
  const at::Tensor whole = storage.narrow(0, 0, storage.numel() / item * item).view(payload.dtype);
  return at::as_strided(whole, payload.sizes, payload.strides, payload.offset);
}

absl::StatusOr<Archive> ReadArchive(const std::string& path, const std::string& model) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ZipReader> zip,
                          ZipReader::Open(path, ArchiveZip()));
  MUSTER_RETURN_IF_ERROR(CheckKind(*zip));
  Archive archive;
  archive.path = path;
  MUSTER_ASSIGN_OR_RETURN(archive.model, ChooseModel(*zip, model));
  MUSTER_ASSIGN_OR_RETURN(archive.program,
                          ReadJson(*zip, fmt::format("{}{}.json", kProgramFile, archive.model)));
  MUSTER_RETURN_IF_ERROR(CheckVersions(*zip, archive.program));
  PayloadReader weights(*zip, std::string(kWeightsFolder));
  MUSTER_RETURN_IF_ERROR(weights.ReadConfig(archive.model));
  MUSTER_RETURN_IF_ERROR(weights.ReadTensors(&archive.weights));
  archive.weight_payloads = std::move(weights.payloads);
  PayloadReader constants(*zip, std::string(kConstantsFolder));
  MUSTER_RETURN_IF_ERROR(constants.ReadConfig(archive.model));
  MUSTER_RETURN_IF_ERROR(constants.ReadTensors(&archive.constants));
  return archive;
}

}  // namespace muster::exported
