// An Observer and CheckpointSink for tests of the Director. Thread-safe, except for the settings,
// which are set before the director starts.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/checkpoint/store.h"
#include "common/train/observer.h"
#include "common/train/state/checkpointing.h"
#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::chief::testing {

// Records the reports and the checkpoints of the director.
class Notes : public Observer, public CheckpointSink {
 public:
  Notes();
  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnSave(int64_t step) override;
  void OnCallback(const std::string& name, const Json& note) override;
  void OnScalars(const std::string& split, const ScalarReport& report) override;
  void OnImages(const std::string& split, const ImageReport& report) override;
  void OnHistogram(const std::string& split, const HistogramReport& report) override;
  bool Wanted(const SaveMoment& moment) override;
  bool IsSaving() const override { return saving; }
  absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& name) override;
  void Save(checkpoint::Snapshot snapshot) override;
  void Failed(const absl::Status&) override { ++failed; }
  absl::Status Drain() override { return absl::OkStatus(); }

  int64_t steps() const;             // The number of reported steps.
  int64_t every_steps = 0;           // Checkpoints are wanted at multiples of this. 0: none.
  bool saves_validated = false;      // A checkpoint is wanted after each validation.
  std::atomic<bool> saving = false;  // The result of IsSaving.
  std::atomic<int> failed = 0;       // The number of calls of Failed.
  checkpoint::MemoryFileSystem files;
  Duration flush = Duration::zero();  // The time that OnSave takes.
  mutable absl::Mutex mu;
  std::vector<StartReport> starts ABSL_GUARDED_BY(mu);
  std::vector<StepReport> step_reports ABSL_GUARDED_BY(mu);
  std::vector<EpochReport> epochs ABSL_GUARDED_BY(mu);
  std::vector<ScalarReport> scalars ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, ImageReport>> images ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, HistogramReport>> histograms ABSL_GUARDED_BY(mu);
  std::vector<checkpoint::Snapshot> saves ABSL_GUARDED_BY(mu);
  std::map<std::string, Json> callbacks ABSL_GUARDED_BY(mu);  // The last note of each callback.

 private:
  std::unique_ptr<checkpoint::Store> store_;
};

}  // namespace muster::chief::testing
