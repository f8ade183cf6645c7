#include "common/job/finished_run.h"

#include <fmt/format.h>

#include <limits>

namespace muster {
namespace {

bool Finished(const Job& job, const Job& before, const Json& result) {
  const int64_t steps = result.at("steps").get<int64_t>();
  // The program has ended training before the job's number of steps or epochs.
  if (result.value("finished", false)) return !TrainsFurther(job, before);
  // result.json counts a partial epoch as one epoch. If max_steps ended the run, the last epoch may
  // be partial.
  int64_t epochs = result.at("epochs").get<int64_t>();
  if (before.max_steps && steps >= *before.max_steps) --epochs;
  return TrainedToItsEnd(job, steps, epochs);
}

}  // namespace

bool TrainedToItsEnd(const Job& job, int64_t steps, int64_t epochs) {
  if (job.max_steps && steps >= *job.max_steps) return true;
  if (!job.epochs && job.max_steps) return false;
  return epochs >= job.epochs.value_or(1);
}

bool TrainsFurther(const Job& job, const Job& before) {
  constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
  const auto epochs = [](const Job& of) { return of.epochs.value_or(of.max_steps ? kNoEnd : 1); };
  return epochs(job) > epochs(before) ||
         job.max_steps.value_or(kNoEnd) > before.max_steps.value_or(kNoEnd);
}

std::string FinishedRun(const Job& job) {
  if (job.model_dir.empty() || job.restore == "never") return "";
  const absl::StatusOr<Json> result = ReadJsonFile(job.model_dir + "/result.json");
  const absl::StatusOr<Json> was = ReadJsonFile(job.model_dir + "/job.json");
  if (!result.ok() || !was.ok()) return "";
  const absl::StatusOr<Job> before = JobFromJson(*was);
  if (!before.ok()) return "";
  try {
    if (result->at("status") != "completed" || !Finished(job, *before, *result)) return "";
    return fmt::format("the job in model_dir '{}' was trained to its end before: step {}",
                       job.model_dir, result->at("steps").get<int64_t>());
  } catch (const Json::exception&) {  // The file is damaged, or another version wrote it.
    return "";
  }
}

}  // namespace muster
