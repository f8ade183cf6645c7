// Combines the flight records of one generation into a story. A flight record has the last events
// of one task (flight_record.h). A generation is a period of training with fixed members. The story
// says which collective operation all members completed, which members entered the next operation,
// and why the generation ended. Pure functions.
//
// The clocks of hosts differ. BuildFlightStory therefore subtracts a clock offset from the times of
// each record. The reference record is the record of the lowest rank. All ranks complete a
// collective operation at nearly the same time. The offset is the median of (completion time in the
// record - completion time in the reference record) over the operations in both records. Records of
// the reference record's host have the offset 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/flight/flight_record.h"
#include "muster/json.h"

namespace muster {

struct FlightQuestion {
  std::vector<FlightRecord> records;  // The records of one generation.
  // The records of the next generation that has records. They show the tasks that came back. May be
  // empty.
  std::vector<FlightRecord> later;
};

// The content of one task's record. Times are in seconds since the epoch, after the subtraction of
// the clock offset.
struct FlightPart {
  std::string task, host;
  int64_t pid = 0;
  double clock_offset = 0;  // In seconds.
  // The number of operations from which the offset was estimated. 0: the offset was not estimated.
  int shared_operations = 0;
  // The sequence number of the last operation that all replicas of the task completed.
  uint64_t completed = 0;
  // The fields from `entered` to `completed_next` describe the next operation. This is the
  // operation after FlightStory::last_completed.
  bool entered = false;         // True if the task entered the next operation.
  double entered_at = 0;        // The time at which the task entered the next operation.
  std::string operation;        // The next operation as the task called it.
  bool completed_next = false;  // True if a replica of the task completed the next operation.
  std::string failure;          // Why an operation of the task failed. "": none failed.
  // The step and phase of the task when an operation failed or the generation ended.
  int64_t step = 0;
  Phase phase = Phase::kStarting;
  // phase_since is the start of `phase`. `end` is the time at which the task learned that the
  // generation had ended.
  double phase_since = 0, end = 0;
  uint64_t lost_events = 0;
};

// A line of the story about one event.
struct FlightNote {
  double at = 0;  // In seconds since the epoch, after the subtraction of the clock offset.
  std::string task, text;
};

struct FlightStory {
  std::string run_id;
  uint64_t generation = 0;
  // The tasks of the generation. `missing` has the tasks without a record.
  std::vector<std::string> members, missing;
  std::vector<FlightPart> parts;  // One for each record, in the order of ranks.
  // The sequence number of the last operation that all tasks with a record completed. 0: none.
  uint64_t last_completed = 0;
  // The text of the operation with the number last_completed. "" if no record has its end.
  std::string last_operation;
  int64_t last_step = 0;  // The step of last_operation.
  double last_at = 0;     // The time at which the last task completed last_operation.
  bool next = false;      // True if at least one task entered the next operation.
  bool diverged = false;  // True if the next operation differs between tasks.
  // In order of time. kPhase, kForming, kStarted, kCollectiveStart and kCollectiveEnd have no note.
  std::vector<FlightNote> notes;
  double started_at = 0;  // 0 if the records do not contain the start of the generation.
  double ended_at = 0;    // The time at which the first task learned that the generation ended.
  std::string reason;     // Why the generation ended.
  // The generation of FlightQuestion::later, or 0.
  uint64_t followed_by = 0;
  // The tasks of FlightQuestion::later, such as "worker 1 (host b, pid 12, a new process)".
  std::vector<std::string> came_back;
};

// REQUIRES: question.records is not empty.
FlightStory BuildFlightStory(const FlightQuestion& question);

// Returns the story as sentences, one per line.
std::vector<std::string> FlightLines(const FlightStory& story);
Json FlightJson(const FlightStory& story);

// Returns the time of day in this host's time zone, such as "03:38:18.528". `wall` is in seconds
// since the epoch.
std::string WallText(double wall);

}  // namespace muster
