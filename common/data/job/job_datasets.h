// The datasets of a job's "data". A process opens each once for all of its replicas.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/data/job/formats.h"

namespace muster::data {

// Thread-safe.
class JobDatasets {
 public:
  // Relative paths start at `folder`.
  static absl::StatusOr<std::shared_ptr<JobDatasets>> Make(const Json& data, std::string folder);
  const JobData& data() const { return data_; }
  const DataOptions& options() const { return options_; }
  // Opens the split at the first call. Every later call returns the same result, also an error.
  // REQUIRES: the split's kind is kFiles. Returns a DataError where the labels of two splits stand
  // for different classes.
  absl::StatusOr<OpenSplit> Open(Split split);
  // Returns only the columns of a split. Where replicas share its files among them, the first file
  // determines the columns.
  absl::StatusOr<std::vector<Column>> Columns(Split split);
  // For auto_shard "file": returns the training examples of the first file. REQUIRES: that option
  // is set.
  absl::StatusOr<DatasetPtr> OpenFirst();
  // For auto_shard "file": returns the training examples of the files k with k mod `shares` ==
  // `share`. Returns a ConfigurationError where there are fewer files than shares. REQUIRES: that
  // option is set.
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
