#include "deploy/report/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/json/lenient_fields.h"

namespace muster::report {
namespace {

double* PartOf(Phase phase, StepSplit* split) {
  switch (phase) {
    case Phase::kData:
      return &split->input;
    case Phase::kForward:
    case Phase::kUpdate:
      return &split->compute;
    case Phase::kReduce:
      return &split->wait;
    default:
      return nullptr;  // Passes and saves are not part of a step.
  }
}

// Returns nothing if the record has no whole step. The first step may be recorded in part, and the
// last one was interrupted.
std::optional<StepSplit> SplitOf(const FlightRecord& record) {
  std::vector<const RecordedEvent*> phases;
  for (const RecordedEvent& event : record.events)
    if (event.kind == FlightKind::kPhase && event.generation == record.header.generation)
      phases.push_back(&event);
  if (phases.size() < 3) return std::nullopt;
  const int64_t first = phases.front()->step, last = phases.back()->step;
  if (last - first < 2) return std::nullopt;
  StepSplit split{.task = record.header.task, .steps = last - first - 1};
  for (size_t i = 0; i + 1 < phases.size(); ++i) {
    const double seconds = phases[i + 1]->monotonic - phases[i]->monotonic;
    double* const part = PartOf(phases[i]->phase, &split);
    const bool whole = phases[i]->step > first && phases[i]->step < last;
    if (part != nullptr && whole && seconds > 0)
      *part += seconds / static_cast<double>(split.steps);
  }
  split.source = fmt::format("flight record of generation {}: mean of steps {} to {}",
                             GenerationText(record.header.generation), first + 1, last - 1);
  return split;
}

using Curves = std::map<std::string, std::vector<summary::Point>>;

// Returns the mean of a curve's values that are known, nothing if there are none.
std::optional<double> MeanOf(const Curves& curves, const std::string& tag) {
  const auto curve = curves.find(tag);
  if (curve == curves.end()) return std::nullopt;
  double sum = 0;
  int64_t count = 0;
  for (const summary::Point& point : curve->second) {
    if (!(point.value >= 0)) continue;  // Negative: unknown.
    sum += point.value;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

// Returns the splits of all tasks in the folder system/, by task.
std::map<std::string, StepSplit> MeasuredSplits(const Run& run) {
  constexpr std::string_view kRate = "steps_per_second/";
  std::map<std::string, StepSplit> splits;
  const auto system = run.folders.find("system");
  if (system == run.folders.end()) return splits;
  const Curves& curves = system->second.scalars;
  for (const auto& [tag, points] : curves) {
    if (!tag.starts_with(kRate)) continue;
    std::string task = tag.substr(kRate.size());
    const std::optional<double> rate = MeanOf(curves, tag);
    const std::optional<double> input = MeanOf(curves, "input_share/" + task);
    const std::optional<double> wait = MeanOf(curves, "wait_share/" + task);
    if (!rate || *rate <= 0 || !input || !wait) continue;
    // The chief writes "worker_1" for "worker:1".
    if (const size_t at = task.rfind('_'); at != std::string::npos) task[at] = ':';
    StepSplit split{.task = task, .source = "system metrics: means of the run"};
    split.input = *input / *rate;
    split.wait = *wait / *rate;
    split.compute = std::max(0.0, 1 - *input - *wait) / *rate;
    splits[task] = std::move(split);
  }
  return splits;
}

}  // namespace

std::vector<StepSplit> SplitsOf(const Run& run) {
  std::vector<StepSplit> splits;
  const Json& median = FieldAt(run.result, {"step_seconds"});
  if (const auto compute = NumberAt(median, {"compute"}))
    splits.push_back({.task = "rank 0",
                      .source = "result.json: medians of the run",
                      .input = NumberAt(median, {"input"}).value_or(0),
                      .compute = *compute,
                      .wait = NumberAt(median, {"wait"}).value_or(0)});
  std::map<std::string, StepSplit> by_task;  // Later records replace earlier ones.
  for (const FlightRecord& record : run.flights)
    if (auto split = SplitOf(record)) by_task[record.header.task] = *std::move(split);
  for (auto& [task, split] : MeasuredSplits(run)) by_task[task] = std::move(split);
  for (auto& [task, split] : by_task) splits.push_back(std::move(split));
  return splits;
}

}  // namespace muster::report
