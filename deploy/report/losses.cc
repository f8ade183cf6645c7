#include "deploy/report/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/base/json/lenient_fields.h"

namespace muster::report {
namespace {

// The end of a generation, as its flight records show it.
struct GenerationEnd {
  int64_t step = 0;
  double wall = 0;
  std::string reason;
  bool used = false;
};

std::map<uint64_t, GenerationEnd> EndsOf(const std::vector<FlightRecord>& flights) {
  std::map<uint64_t, GenerationEnd> ends;
  for (const FlightRecord& record : flights) {
    GenerationEnd& end = ends[record.header.generation];
    if (end.reason.empty()) end.reason = record.header.reason;
    for (const RecordedEvent& event : record.events) {
      if (event.generation != record.header.generation) continue;
      end.step = std::max(end.step, event.step);
      const bool over = event.kind == FlightKind::kAborted || event.kind == FlightKind::kVerdict ||
                        event.kind == FlightKind::kFailure;
      if (over && (end.wall == 0 || event.wall < end.wall)) end.wall = event.wall;
    }
    if (end.wall == 0) end.wall = record.written_wall;
  }
  return ends;
}

// Returns the wall time of the first point of train/ after `step`, 0 if there is none.
double NextPoint(const Run& run, int64_t step) {
  const auto train = run.folders.find("train");
  if (train == run.folders.end()) return 0;
  double wall = 0;
  for (const auto& [tag, points] : train->second.scalars)
    for (const summary::Point& point : points)
      if (point.step > step && (wall == 0 || point.wall < wall)) wall = point.wall;
  return wall;
}

std::vector<Mark> LossesOf(const Run& run) {
  std::vector<Mark> marks;
  const Json& losses = FieldAt(run.recovery, {"last_losses"});
  if (!losses.is_array()) return marks;
  for (const Json& loss : losses) {
    Mark mark{.kind = Mark::Kind::kLoss,
              .step = IntegerAt(loss, {"step"}).value_or(0),
              .seconds = NumberAt(loss, {"seconds"}).value_or(-1),
              .text = TextAt(loss, {"cause"})};
    mark.wall = NextPoint(run, mark.step);
    if (mark.wall > 0) {
      mark.estimated = true;
      mark.wall = std::max(mark.wall - std::max(0.0, mark.seconds), run.began);
    }
    marks.push_back(std::move(mark));
  }
  return marks;
}

// A process that continues the files of an earlier one is a restart. A process that opens a file
// again after a loss is not.
std::vector<Mark> RestartsOf(const Run& run) {
  std::vector<Mark> marks;
  const auto train = run.folders.find("train");
  if (train == run.folders.end()) return marks;
  std::string before;
  for (const summary::WriterStart& start : train->second.starts) {
    if (!before.empty() && start.writer != before)
      marks.push_back({.kind = Mark::Kind::kRestart,
                       .step = start.step - 1,
                       .wall = start.wall,
                       .text = fmt::format("a new chief ({}) continued the run", start.writer)});
    before = start.writer;
  }
  return marks;
}

}  // namespace

const char* KindName(Mark::Kind kind) {
  return kind == Mark::Kind::kLoss ? "loss" : kind == Mark::Kind::kRestart ? "restart" : "end";
}

std::vector<Mark> MarksOf(const Run& run) {
  std::vector<Mark> marks = LossesOf(run);
  std::map<uint64_t, GenerationEnd> ends = EndsOf(run.flights);
  for (Mark& mark : marks) {
    for (auto& [generation, end] : ends) {
      // The generation was in the step that training repeated.
      if (end.used || end.step < mark.step || end.step > mark.step + 1) continue;
      end.used = true;
      mark.wall = end.wall;
      mark.estimated = false;
      break;
    }
  }
  for (Mark& mark : RestartsOf(run)) marks.push_back(std::move(mark));
  for (const auto& [generation, end] : ends) {
    if (end.used) continue;
    marks.push_back(
        {.kind = Mark::Kind::kEnd,
         .step = end.step,
         .wall = end.wall,
         .text = fmt::format("generation {} ended: {}", GenerationText(generation), end.reason)});
  }
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.step < b.step; });
  return marks;
}

}  // namespace muster::report
