#include "chief/model_dir/run_folders.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/summary/event_reader.h"

namespace muster::chief {

absl::Status RunFolders::OnStart(const StartReport& report) {
  const int64_t next = report.start_step + 1;
  // An incomplete pass runs again at the same step, so its points are void.
  const std::pair<const char*, int64_t> first_steps[] = {
      {"train", next},
      {"validation", report.validation_due ? report.start_step : next},
      {"test", report.test_due ? report.start_step : next},
      {"eval", next},
      {"system", next}};
  absl::Status status;
  for (const auto& [name, first_step] : first_steps) {
    const bool known = folders_.contains(name);
    Folder& folder = folders_[name];
    folder.first_step = first_step;
    std::error_code error;
    const bool stale = known ? folder.last_step >= first_step
                             : std::filesystem::exists(options_.model_dir + "/" + name, error);
    if (stale) status.Update(Open(name, &folder));
  }
  return status;
}

absl::Status RunFolders::Open(const std::string& name, Folder* folder) {
  folder->writer.reset();  // Flushes the old file before the new one begins.
  folder->last_step = -1;
  MUSTER_ASSIGN_OR_RETURN(folder->writer,
                          summary::EventWriter::Open(options_.model_dir + "/" + name,
                                                     {.first_step = folder->first_step,
                                                      // A successor of this process must find
                                                      // everything that it has published.
                                                      .flush_interval = Duration::zero(),
                                                      .fence = options_.fence,
                                                      .check_disk = options_.check_disk}));
  return absl::OkStatus();
}

absl::StatusOr<summary::EventWriter*> RunFolders::At(const std::string& folder, int64_t step) {
  Folder& open = folders_[folder];
  if (open.writer == nullptr) MUSTER_RETURN_IF_ERROR(Open(folder, &open));
  open.last_step = std::max(open.last_step, step);
  return open.writer.get();
}

int64_t RunFolders::last_step(const std::string& folder) const {
  const auto found = folders_.find(folder);
  return found == folders_.end() ? -1 : found->second.last_step;
}

int64_t RunFolders::LastStepOf(const std::string& folder, const std::string& tag) {
  if (const auto open = folders_.find(folder); open != folders_.end() && open->second.writer)
    open->second.writer->Flush().IgnoreError();
  return summary::LastStepOf(options_.model_dir + "/" + folder, tag);
}

absl::Status RunFolders::Flush() {
  absl::Status status;
  for (auto& [name, folder] : folders_)
    if (folder.writer != nullptr) status.Update(folder.writer->Flush());
  return status;
}

absl::Status RunFolders::Sync() {
  absl::Status status;
  for (auto& [name, folder] : folders_)
    if (folder.writer != nullptr) status.Update(folder.writer->Sync());
  return status;
}

}  // namespace muster::chief
