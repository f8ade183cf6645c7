#include "deploy/report/split.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "deploy/report/fields.h"

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
      return nullptr;  // A pass, a save and the like are not part of a step.
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
  for (auto& [task, split] : by_task) splits.push_back(std::move(split));
  return splits;
}

}  // namespace muster::report
