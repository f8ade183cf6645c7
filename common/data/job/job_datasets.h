// The datasets of a job's "data".
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/data/job/formats.h"

namespace muster::data {

// Opens each split (training, validation or test data) once for all replicas of a process.
// Thread-safe.
class JobDatasets {
 public:
  // `data` is the section "data" of the job. Relative paths are relative to `folder`.
  static absl::StatusOr<std::shared_ptr<JobDatasets>> Make(const Json& data, std::string folder);
  const JobData& data() const { return data_; }
  const DataOptions& options() const { return options_; }
  // Opens the split at the first call. All other calls return the result of the first call, even an
  // error. REQUIRES: the split's kind is kFiles. Returns a DataError if a label has different
  // classes in two splits.
  absl::StatusOr<OpenSplit> Open(Split split);
  // Returns the columns of a split. If the job's key "auto_shard" is "file", each replica reads
  // only its own files of the training split. In this case, Columns reads the first file of the
  // training split.
  absl::StatusOr<std::vector<Column>> Columns(Split split);
  // Returns the training examples of the first file. REQUIRES: auto_shard is "file".
  absl::StatusOr<DatasetPtr> OpenFirst();
  // Numbers the files of the training split in the order of their names, from 0. Returns the
  // training examples of the files with a number k for which k mod `shares` == `share`. Returns a
  // ConfigurationError if there are fewer files than `shares`. REQUIRES: auto_shard is "file".
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
