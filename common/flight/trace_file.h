// The file of `muster trace`, in Chrome's trace event format. Perfetto (ui.perfetto.dev) and
// chrome://tracing open the file. In the file, each task is a process, and each lane (spans.h) is a
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace muster {

// A SpanEvent (spans.h) of a task.
struct TracedSpan {
  uint32_t name = 0, lane = 0;            // Indices into TracedTask::names and lanes.
  int64_t begin_ns = 0, duration_ns = 0;  // By the task's monotonic clock.
  int64_t step = 0, bytes = 0;
  uint64_t sequence = 0;
  int32_t index = -1;
  bool truncated = false;  // Still open at the end of the trace.
};

// The offset between the monotonic clocks of a task and the chief.
struct TracedClock {
  std::string clock;      // The result of ClockOfThisProcess in the task.
  int64_t offset_ns = 0;  // The chief's clock minus the task's clock.
  int64_t error_ns = 0;   // The maximum error of offset_ns.
  int round_trips = 0;    // The number of calls to the chief from which the offset was computed.
  bool shared = false;    // True if the chief has the same clock. The offset is then 0.
};

struct TracedTask {
  std::string task, host;  // For example "worker:1".
  int64_t pid = 0;
  std::vector<std::string> lanes, names;
  std::vector<TracedSpan> spans;
  uint64_t lost_spans = 0;
  int64_t first_step = 0, last_step = 0;
  TracedClock clock;
};

struct TraceDescription {
  std::string run_id;
  std::vector<std::string> missing;  // One sentence for each task that delivered no spans.
};

// Names in model_dir/trace: the folder, the prefix of trace files, the request to the chief for a
// trace, and the prefix of the chief's answer.
inline constexpr char kTraceFolder[] = "trace";
inline constexpr char kTracePrefix[] = "step-";
inline constexpr char kTraceRequestFile[] = "request.json";
inline constexpr char kTraceAnswerPrefix[] = "answer-";
std::string TraceFile(int64_t first_step);           // "step-00000012.json"
std::string TraceAnswerFile(const std::string& id);  // "answer-ID.json"
// Returns the time of the last write to a file. Returns the earliest representable time if the
// file's time is unknown. Traces are ordered by this time, not by their steps, because a restarted
// run may repeat steps.
std::filesystem::file_time_type WrittenAt(const std::string& path);

// Returns an identifier of this process's monotonic clock: the host's boot id and the time
// namespace. Processes with the same identifier have the same clock.
std::string ClockOfThisProcess();

// Returns the text of the file. Viewers show the tasks in the order of `tasks`. The earliest span
// begins at time 0. In the format, two spans of a thread nest or do not overlap. A lane with other
// overlaps becomes several threads with the same name.
std::string TraceText(const std::vector<TracedTask>& tasks, const TraceDescription& description);

}  // namespace muster
