#include <fmt/format.h>

#include "common/data/job/job_data.h"

namespace muster::data {
namespace {

const Json& At(const Json& object, const std::string& key) {
  static const Json nothing;
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() ? *it : nothing;
}

// Returns the training split as in the job, or null if the program provides the training data.
Json TrainOf(const Json& job) {
  const Json& train = At(At(job, "data"), "train");
  return train == "program" ? Json() : train;
}

// Returns all values of the split that must be equal, except files. As in the job, null means an
// absent key.
Json WithoutFiles(const Json& job, const DataSplit& split) {
  Json same = {{"format", split.format}, {"shuffle", split.shuffle}, {"skip", split.skip}};
  if (split.take) same["take"] = *split.take;
  if (split.fraction) same["fraction"] = {split.fraction->first, split.fraction->second};
  for (const DataColumn& column : split.columns) {
    Json values = {{"name", column.name},
                   {"dtype", column.dtype},
                   {"multiplied", column.multiplied},
                   {"divided", column.divided},
                   {"decode", column.decode}};
    if (!split.paths.empty()) values["from"] = column.source;
    if (column.shape) values["shape"] = *column.shape;
    same["columns"].push_back(std::move(values));
  }
  // The remaining keys are those of single formats. "cache" changes no example.
  const Json train = TrainOf(job);
  for (const auto& [key, value] : train.items()) {
    const bool read = same.contains(key) || key == "x" || key == "y" || key == "columns" ||
                      key == "order" || key == "take" || key == "fraction" || key == "path" ||
                      key == "cache";
    if (!read && !value.is_null()) same[key] = value;
  }
  return same;
}

std::string Text(const Json& json) { return json.is_null() ? "the program's own" : json.dump(); }

}  // namespace

std::optional<TrainingDifference> DifferenceInTraining(const Json& before, const Json& now) {
  const auto shard = [](const Json& job) {
    const Json& value = At(At(job, "data"), "auto_shard");
    return value.is_string() ? value.get<std::string>() : std::string(kAutoShardNames[0]);
  };
  if (shard(before) != shard(now))
    return TrainingDifference{"data.auto_shard", shard(before), shard(now)};
  const Json old_train = TrainOf(before), new_train = TrainOf(now);
  const TrainingDifference whole = {"data.train", Text(old_train), Text(new_train)};
  if (old_train.is_null() || new_train.is_null()) {
    return old_train == new_train ? std::nullopt : std::optional(whole);
  }
  const auto old_data = ParseJobData(At(before, "data")), new_data = ParseJobData(At(now, "data"));
  if (!old_data.ok() || !new_data.ok()) return whole;
  const DataSplit &old_split = (*old_data)[0], &new_split = (*new_data)[0];
  if (WithoutFiles(before, old_split) != WithoutFiles(now, new_split)) return whole;
  const auto old_files = FilesOf(JobData{old_split}), new_files = FilesOf(JobData{new_split});
  for (size_t i = 0; i < std::min(old_files.size(), new_files.size()); ++i) {
    const Json& old_digest = At(At(before, "digests"), old_files[i].first);
    const Json& new_digest = At(At(now, "digests"), new_files[i].first);
    const bool both = old_digest.is_string() && new_digest.is_string();
    const std::string was = both ? old_digest.get<std::string>() : old_files[i].second;
    const std::string is = both ? new_digest.get<std::string>() : new_files[i].second;
    if (was != is) return TrainingDifference{new_files[i].first, was, is};
  }
  return old_files.size() == new_files.size() ? std::nullopt : std::optional(whole);
}

}  // namespace muster::data
