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
  const DataOptions& options() const { return options_; }
  // Opened at the first call; every later one gives the same, an error too. REQUIRES: the split's
  // kind is kFiles. A DataError where labels of two splits number other classes.
  absl::StatusOr<OpenSplit> Open(Split split);
  // Its columns alone: of files that replicas share among them the first one tells.
  absl::StatusOr<std::vector<Column>> Columns(Split split);
  // auto_shard "file": the training examples of the first file. REQUIRES: that is the option.
  absl::StatusOr<DatasetPtr> OpenFirst();
  // Likewise: the training examples of the files k with k mod `shares` == `share`. A
  // ConfigurationError where there are fewer files than shares. REQUIRES: that is the option.
  absl::StatusOr<DatasetPtr> OpenShare(int share, int shares);

 private:
  JobDatasets(JobData data, const DataOptions& options, std::string folder)
      : data_(std::move(data)), options_(options), folder_(std::move(folder)) {}
  absl::StatusOr<OpenSplit> First();

  const JobData data_;
  const DataOptions options_;
  const std::string folder_;
  absl::Mutex mutex_;
  std::array<std::optional<absl::StatusOr<OpenSplit>>, 3> open_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<OpenSplit>> first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::data
