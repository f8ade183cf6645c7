#include "common/checkpoint/weights_file.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>

#include "common/checkpoint/export_file.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "muster/json.h"

namespace muster::checkpoint {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

absl::StatusOr<WeightsFile> ReadFileOfTensors(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  uint32_t crc = 0;
  WeightsFile read;
  Metadata metadata;
  absl::StatusOr<TensorSet> set = ReadSafetensors(*file, &crc, &read.foreign, &metadata);
  if (absl::IsDataLoss(set.status())) return Annotate(set.status(), path + ": ");
  MUSTER_RETURN_IF_ERROR(set.status());
  read.set = *std::move(set);
  if (IsExport(metadata)) RetainModels(&read.set);
  return read;
}

// Reads an index. Returns the names of the tensors of each file.
absl::StatusOr<std::map<std::string, std::set<std::string>>> ReadIndex(FileSystem& files,
                                                                       const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path));
  const absl::StatusOr<Json> json = ParseJson(text, path);
  if (!json.ok()) return DataError(Message(json.status()));
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (map == json->end() || !map->is_object())
    return DataError(fmt::format("{}: it has no \"weight_map\"", path));
  std::map<std::string, std::set<std::string>> by_file;
  for (const auto& [tensor, file] : map->items()) {
    // Accepts only files in the folder of the index.
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == ".." || name.find('/') != std::string::npos) {
      return DataError(fmt::format("{}: tensor {} is said to be in {}, which is no file beside it",
                                   path, Dump(Json(tensor)), Dump(file)));
    }
    by_file[name].insert(tensor);
  }
  return by_file;
}

absl::Status ReadIndexed(FileSystem& files, const std::string& path,
                         const std::function<absl::Status(const WeightsFile&)>& take) {
  MUSTER_ASSIGN_OR_RETURN(const auto by_file, ReadIndex(files, path));
  for (const auto& [name, tensors] : by_file) {
    const std::string file = JoinPath(ParentPath(path), name);
    const absl::StatusOr<WeightsFile> all = ReadFileOfTensors(files, file);
    if (absl::IsNotFound(all.status()))
      return DataError(fmt::format("{} is missing, which {} names", file, path));
    if (!all.ok()) return all.status();
    WeightsFile own;
    own.set.memory = all->set.memory;
    for (const std::string& tensor : tensors) {
      if (const auto foreign = all->foreign.find(tensor); foreign != all->foreign.end()) {
        own.foreign.insert(*foreign);
        continue;
      }
      const Tensor* found = all->set.Find(tensor);
      if (found == nullptr) {
        return DataError(fmt::format("{} has no tensor {}, which {} says is there", file,
                                     Dump(Json(tensor)), path));
      }
      own.set.tensors.push_back(*found);
    }
    MUSTER_RETURN_IF_ERROR(take(own));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadWeights(FileSystem& files, const std::string& path,
                         const std::function<absl::Status(const WeightsFile&)>& take) {
  if (path.ends_with(kIndexSuffix)) return ReadIndexed(files, path, take);
  for (const std::string& inner :
       {JoinPath(path, kModelFile),
        JoinPath(path, std::string(kModelFile) + std::string(kIndexSuffix))}) {
    const absl::StatusOr<bool> there = files.Exists(inner);
    if (there.ok() && *there) return ReadWeights(files, inner, take);
  }
  MUSTER_ASSIGN_OR_RETURN(const WeightsFile file, ReadFileOfTensors(files, path));
  return take(file);
}

}  // namespace muster::checkpoint
