#include "common/flight/flight_story.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "common/cluster/verdict.h"

namespace muster {
namespace {

bool EndsGeneration(FlightKind kind) {
  return kind == FlightKind::kAborted || kind == FlightKind::kVerdict ||
         kind == FlightKind::kChiefLost;
}

// Returns the record's events of the generation.
std::vector<const RecordedEvent*> OfGeneration(const FlightRecord& record, uint64_t generation) {
  std::vector<const RecordedEvent*> events;
  for (const RecordedEvent& event : record.events)
    if (event.generation == generation) events.push_back(&event);
  return events;
}

// Returns the time at which the task completed each operation, by sequence number. The time of the
// task's last replica counts.
std::map<uint64_t, double> Completions(const FlightRecord& record, uint64_t generation) {
  std::map<uint64_t, double> completions;
  for (const RecordedEvent* event : OfGeneration(record, generation))
    if (event->kind == FlightKind::kCollectiveEnd) completions[event->sequence] = event->wall;
  return completions;
}

void FindOffset(const FlightRecord& first, const FlightRecord& record, uint64_t generation,
                FlightPart* part) {
  if (record.header.host == first.header.host) return;
  const auto mine = Completions(record, generation), theirs = Completions(first, generation);
  std::vector<double> differences;
  for (const auto& [sequence, at] : mine)
    if (const auto other = theirs.find(sequence); other != theirs.end())
      differences.push_back(at - other->second);
  if (differences.empty()) return;
  const auto middle = differences.begin() + differences.size() / 2;
  std::nth_element(differences.begin(), middle, differences.end());
  part->clock_offset = *middle;
  part->shared_operations = static_cast<int>(differences.size());
}

// Returns the highest operation with an event of `kind` for all replicas of this task.
uint64_t HighestOf(const std::vector<const RecordedEvent*>& events, FlightKind kind) {
  std::map<int32_t, uint64_t> highest;
  for (const RecordedEvent* event : events) {
    if (event->kind == FlightKind::kCollectiveStart) highest.try_emplace(event->replica, 0);
    if (event->kind == kind)
      highest[event->replica] = std::max(highest[event->replica], event->sequence);
  }
  uint64_t lowest = highest.empty() ? 0 : UINT64_MAX;
  for (const auto& [replica, sequence] : highest) lowest = std::min(lowest, sequence);
  return lowest;
}

FlightPart PartOf(const FlightRecord& first, const FlightRecord& record, uint64_t generation) {
  FlightPart part;
  part.task = record.header.task;
  part.host = record.header.host;
  part.pid = record.header.pid;
  part.lost_events = record.lost_events;
  FindOffset(first, record, generation, &part);
  const auto events = OfGeneration(record, generation);
  part.completed = HighestOf(events, FlightKind::kCollectiveEnd);
  part.end = record.written_wall - part.clock_offset;
  // Stops at the end of the generation. Later events are cleanup.
  for (const RecordedEvent* event : events) {
    if (EndsGeneration(event->kind) || event->kind == FlightKind::kCollectiveFailed) {
      if (EndsGeneration(event->kind)) {
        part.end = event->wall - part.clock_offset;
        break;
      }
      part.failure = event->detail;
      continue;
    }
    if (event->kind != FlightKind::kPhase || !part.failure.empty()) continue;
    if (part.phase != event->phase || part.step != event->step || part.phase_since == 0)
      part.phase_since = event->wall - part.clock_offset;
    part.phase = event->phase;
    part.step = event->step;
  }
  return part;
}

void FindNext(const FlightRecord& record, uint64_t generation, uint64_t next, FlightPart* part) {
  for (const RecordedEvent* event : OfGeneration(record, generation)) {
    if (event->sequence != next) continue;
    if (event->kind == FlightKind::kCollectiveStart && !part->entered) {
      part->entered = true;
      part->entered_at = event->wall - part->clock_offset;
      part->operation = event->operation;
    }
    if (event->kind == FlightKind::kCollectiveEnd) part->completed_next = true;
  }
}

void FindLast(const FlightQuestion& question, FlightStory* story) {
  story->last_completed = UINT64_MAX;
  for (const FlightPart& part : story->parts)
    story->last_completed = std::min(story->last_completed, part.completed);
  for (size_t i = 0; i < story->parts.size(); ++i) {
    FlightPart& part = story->parts[i];
    for (const RecordedEvent* event : OfGeneration(question.records[i], story->generation)) {
      if (event->kind != FlightKind::kCollectiveEnd || story->last_completed == 0 ||
          event->sequence != story->last_completed)
        continue;
      story->last_operation = event->operation;
      story->last_step = event->step;
      story->last_at = std::max(story->last_at, event->wall - part.clock_offset);
    }
    FindNext(question.records[i], story->generation, story->last_completed + 1, &part);
    story->next = story->next || part.entered;
  }
  std::set<std::string> operations;
  for (const FlightPart& part : story->parts)
    if (part.entered) operations.insert(part.operation);
  story->diverged = operations.size() > 1;
}

std::string NoteText(const RecordedEvent& event) {
  switch (event.kind) {
    case FlightKind::kFormed:
      return "communicators formed" + (event.detail.empty() ? "" : ": " + event.detail);
    case FlightKind::kNotFormed:
      return "could not form: " + event.detail;
    case FlightKind::kAborted:
      return "the generation is over: " + event.detail;
    case FlightKind::kChiefLost:
      return "lost the chief: " + event.detail;
    case FlightKind::kChiefFound:
      return "reached the chief";
    case FlightKind::kStopRequested:
      return "stop requested: " + event.detail;
    case FlightKind::kVerdict:
      return event.detail.empty() ? "the job is done" : "received the verdict: " + event.detail;
    case FlightKind::kFailure:
      return "failed: " + event.detail;
    case FlightKind::kCollectiveFailed:
      return fmt::format("collective {}, {}, failed: {}", event.sequence, event.operation,
                         event.detail);
    default:
      return "";
  }
}

void FindNotes(const FlightQuestion& question, FlightStory* story) {
  for (size_t i = 0; i < story->parts.size(); ++i) {
    const FlightPart& part = story->parts[i];
    for (const RecordedEvent* event : OfGeneration(question.records[i], story->generation)) {
      const double at = event->wall - part.clock_offset;
      if (event->kind == FlightKind::kStarted)
        story->started_at = story->started_at == 0 ? at : std::min(story->started_at, at);
      if (EndsGeneration(event->kind) && (story->ended_at == 0 || at < story->ended_at)) {
        story->ended_at = at;
        if (!event->detail.empty()) story->reason = event->detail;
      }
      if (std::string text = NoteText(*event); !text.empty())
        story->notes.push_back({at, part.task, std::move(text)});
    }
  }
  std::stable_sort(story->notes.begin(), story->notes.end(),
                   [](const FlightNote& a, const FlightNote& b) { return a.at < b.at; });
  if (story->reason.empty()) story->reason = question.records[0].header.reason;
  // The text of an event may be truncated, but the reason in a record's header is complete.
  for (const FlightRecord& record : question.records)
    if (record.header.reason.starts_with(story->reason)) story->reason = record.header.reason;
}

void FindLater(const FlightQuestion& question, FlightStory* story) {
  for (const FlightRecord& record : question.later) {
    const FlightHeader& later = record.header;
    story->followed_by = later.generation;
    // A process that was in this generation has recorded events of this generation.
    const bool same = !OfGeneration(record, story->generation).empty() ||
                      std::any_of(story->parts.begin(), story->parts.end(), [&](const auto& part) {
                        return part.task == later.task && part.pid == later.pid;
                      });
    story->came_back.push_back(fmt::format("{} (host {}, pid {}, {})", TaskText(later.task),
                                           later.host, later.pid,
                                           same ? "the same process" : "a new process"));
  }
}

}  // namespace

FlightStory BuildFlightStory(const FlightQuestion& question) {
  FlightStory story;
  FlightQuestion ordered = question;
  const std::vector<std::string> members = question.records.front().header.members;
  const auto rank = [&members](const FlightRecord& record) {
    return std::find(members.begin(), members.end(), record.header.task) - members.begin();
  };
  std::stable_sort(ordered.records.begin(), ordered.records.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const FlightRecord& first = ordered.records.front();
  story.run_id = first.header.run_id;
  story.generation = first.header.generation;
  story.members = members;
  for (const FlightRecord& record : ordered.records)
    story.parts.push_back(PartOf(first, record, story.generation));
  for (const std::string& task : members)
    if (std::none_of(story.parts.begin(), story.parts.end(),
                     [&](const FlightPart& part) { return part.task == task; }))
      story.missing.push_back(task);
  FindLast(ordered, &story);
  FindNotes(ordered, &story);
  FindLater(ordered, &story);
  return story;
}

std::string WallText(double wall) {
  const auto seconds = static_cast<std::time_t>(std::floor(wall));
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:%H:%M:%S}.{:03}", local,
                     static_cast<int>((wall - static_cast<double>(seconds)) * 1000));
}

}  // namespace muster
