#include "common/data/job_datasets.h"

namespace muster::data {

absl::StatusOr<std::shared_ptr<JobDatasets>> JobDatasets::Make(const Json& data,
                                                               std::string folder) {
  MUSTER_ASSIGN_OR_RETURN(JobData parsed, ParseJobData(data));
  return std::shared_ptr<JobDatasets>(new JobDatasets(std::move(parsed), std::move(folder)));
}

absl::StatusOr<OpenSplit> JobDatasets::Open(Split split) {
  absl::MutexLock lock(&mutex_);
  auto& open = open_[static_cast<int>(split)];
  if (!open) open = OpenJobSplit(SplitOf(data_, split), folder_);
  return *open;
}

}  // namespace muster::data
