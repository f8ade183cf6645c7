#include "tests/unit/parameter_server/notes.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace muster::chief::testing {

Notes::Notes() {
  auto store = checkpoint::Store::Open(
      files, {.directory = "checkpoints", .token = "test", .keep = 1000}, /*restored_step=*/-1);
  EXPECT_TRUE(store.ok()) << Message(store.status());
  store_ = *std::move(store);
}
void Notes::OnStart(const StartReport& report) {
  absl::MutexLock lock(&mu);
  starts.push_back(report);
}
void Notes::OnStep(const StepReport& report) {
  absl::MutexLock lock(&mu);
  step_reports.push_back(report);
}
void Notes::OnEpoch(const EpochReport& report) {
  absl::MutexLock lock(&mu);
  epochs.push_back(report);
}
void Notes::OnSave(int64_t) { std::this_thread::sleep_for(flush); }
void Notes::OnCallback(const std::string& name, const Json& note) {
  absl::MutexLock lock(&mu);
  callbacks[name] = note;
}
void Notes::OnScalars(const std::string&, const ScalarReport& report) {
  absl::MutexLock lock(&mu);
  scalars.push_back(report);
}
void Notes::OnImages(const std::string& split, const ImageReport& report) {
  absl::MutexLock lock(&mu);
  images.emplace_back(split, report);
}
void Notes::OnHistogram(const std::string& split, const HistogramReport& report) {
  if (report.tag.starts_with("staleness/")) return;
  absl::MutexLock lock(&mu);
  histograms.emplace_back(split, report);
}
bool Notes::Wanted(const SaveMoment& moment) {
  if (moment.last || moment.stopping) return true;
  if (moment.validated) return saves_validated && !moment.busy;
  return !moment.busy && (every_steps > 0 && moment.step % every_steps == 0);
}
absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> Notes::StageFile(const std::string& name) {
  return store_->StageFile(name);
}
void Notes::Save(checkpoint::Snapshot snapshot) {
  const auto path = store_->Write(snapshot);
  ASSERT_TRUE(path.ok()) << Message(path.status());
  auto read = checkpoint::ReadCheckpoint(files, *path);
  ASSERT_TRUE(read.ok()) << Message(read.status());
  read->replaces = snapshot.replaces;
  absl::MutexLock lock(&mu);
  saves.push_back(*std::move(read));
}
int64_t Notes::steps() const {
  absl::MutexLock lock(&mu);
  return step_reports.empty() ? 0 : step_reports.back().step;
}

}  // namespace muster::chief::testing
