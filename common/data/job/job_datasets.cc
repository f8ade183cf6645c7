#include "common/data/job/job_datasets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster::data {
namespace {

// Checks that a label has the same meaning in both splits.
absl::Status SameClasses(const std::string& one_key, const OpenSplit& one,
                         const std::string& other_key, const OpenSplit& other) {
  for (const Column& a : one.columns) {
    for (const Column& b : other.columns) {
      if (a.name != b.name || a.classes.empty() || b.classes.empty() || a.classes == b.classes)
        continue;
      return DataError(fmt::format(
          "{} has the classes {} and {} has {}: give both a folder for each of the same classes",
          one_key, fmt::join(a.classes, ", "), other_key, fmt::join(b.classes, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<JobDatasets>> JobDatasets::Make(const Json& data,
                                                               std::string folder) {
  MUSTER_ASSIGN_OR_RETURN(JobData parsed, ParseJobData(data));
  MUSTER_ASSIGN_OR_RETURN(const DataOptions options, ParseDataOptions(data));
  return std::shared_ptr<JobDatasets>(
      new JobDatasets(std::move(parsed), options, std::move(folder)));
}

absl::StatusOr<std::vector<Column>> JobDatasets::Columns(Split split) {
  if (split != Split::kTrain || options_.auto_shard != AutoShard::kFile) {
    MUSTER_ASSIGN_OR_RETURN(const OpenSplit open, Open(split));
    return open.columns;
  }
  MUSTER_ASSIGN_OR_RETURN(const OpenSplit first, First());
  return first.columns;
}

absl::StatusOr<OpenSplit> JobDatasets::First() {
  absl::MutexLock lock(&mutex_);
  if (first_) return *first_;
  const auto open = [this]() -> absl::StatusOr<OpenSplit> {
    MUSTER_ASSIGN_OR_RETURN(DataSplit first, ShareOf(SplitOf(data_, Split::kTrain), folder_, 0, 1));
    first.paths.resize(1);
    return OpenJobSplit(first, folder_);
  };
  first_ = open();
  return *first_;
}

absl::StatusOr<DatasetPtr> JobDatasets::OpenFirst() {
  MUSTER_ASSIGN_OR_RETURN(const OpenSplit first, First());
  return first.dataset;
}

absl::StatusOr<DatasetPtr> JobDatasets::OpenShare(int share, int shares) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Column> columns, Columns(Split::kTrain));
  MUSTER_ASSIGN_OR_RETURN(const DataSplit split,
                          ShareOf(SplitOf(data_, Split::kTrain), folder_, share, shares));
  MUSTER_ASSIGN_OR_RETURN(const OpenSplit open, OpenJobSplit(split, folder_));
  for (size_t c = 0; c < columns.size(); ++c) {
    if (open.columns[c].type == columns[c].type && open.columns[c].shape == columns[c].shape)
      continue;
    return DataError(fmt::format(
        "{}: '{}' has {} of shape [{}] as '{}', and the first file has {} of shape [{}]: all files "
        "must hold examples that are alike",
        split.key, split.paths.front(), c10::toString(open.columns[c].type),
        fmt::join(open.columns[c].shape, ", "), columns[c].name, c10::toString(columns[c].type),
        fmt::join(columns[c].shape, ", ")));
  }
  return open.dataset;
}

absl::StatusOr<OpenSplit> JobDatasets::Open(Split split) {
  absl::MutexLock lock(&mutex_);
  auto& open = open_[static_cast<int>(split)];
  if (open) return *open;
  open = OpenJobSplit(SplitOf(data_, split), folder_);
  for (size_t i = 0; i < open_.size(); ++i) {
    if (!open->ok() || &open_[i] == &open || !open_[i] || !open_[i]->ok()) continue;
    const absl::Status same =
        SameClasses(data_[i].key, **open_[i], SplitOf(data_, split).key, **open);
    if (!same.ok()) open = same;
  }
  return *open;
}

}  // namespace muster::data
