// The datasets of a job's "data", opened once a process for all of its replicas.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/data/formats.h"

namespace muster::data {

// Any thread.
class JobDatasets {
 public:
  // `folder`: where relative paths are looked up.
  static absl::StatusOr<std::shared_ptr<JobDatasets>> Make(const Json& data, std::string folder);
  const JobData& data() const { return data_; }
  // Opened at the first call; every later one gives the same, an error too. REQUIRES: the split's
  // kind is kFiles. A DataError where labels of two splits number other classes.
  absl::StatusOr<OpenSplit> Open(Split split);

 private:
  JobDatasets(JobData data, std::string folder)
      : data_(std::move(data)), folder_(std::move(folder)) {}
  const JobData data_;
  const std::string folder_;
  absl::Mutex mutex_;
  std::array<std::optional<absl::StatusOr<OpenSplit>>, 3> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::data
