#include "common/data/job_datasets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster::data {
namespace {

// Label 3 has to mean the same in training and validation.
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
  return std::shared_ptr<JobDatasets>(new JobDatasets(std::move(parsed), std::move(folder)));
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
