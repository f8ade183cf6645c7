// The file of `muster trace`, in Chrome's trace event format: a JSON object that Perfetto
// (ui.perfetto.dev) and chrome://tracing open. A process in the file is a task, and a thread is a
// lane.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace muster {

struct TracedSpan {
  uint32_t name = 0, lane = 0;  // Indices into the names and lanes of the task.
  int64_t begin_ns = 0, duration_ns = 0;
  int64_t step = 0, bytes = 0;
  uint64_t sequence = 0;
  int32_t index = -1;
  bool truncated = false;  // Still open at the end of the trace.
};

// The offset between the clocks of a task and the chief.
struct ClockOffset {
  std::string clock;      // Equal for processes with the same clock.
  int64_t offset_ns = 0;  // The chief's clock minus the task's.
  int64_t error_ns = 0;
  int round_trips = 0;
  bool shared = false;  // The chief has the same clock, so the offset is 0.
};

struct TracedTask {
  std::string task, host;  // For example "worker:1".
  int64_t pid = 0;
  std::vector<std::string> lanes, names;
  std::vector<TracedSpan> spans;
  uint64_t lost_spans = 0;
  int64_t first_step = 0, last_step = 0;
  ClockOffset clock;
};

struct TraceDescription {
  std::string run_id;
  std::vector<std::string> missing;  // One sentence for each task without spans.
};

// Names in model_dir/trace: the files of traces, a request to the chief, and the chief's answer to
// it.
inline constexpr char kTraceFolder[] = "trace";
inline constexpr char kTracePrefix[] = "step-";
inline constexpr char kTraceRequestFile[] = "request.json";
inline constexpr char kTraceAnswerPrefix[] = "answer-";
std::string TraceFile(int64_t first_step);           // "step-00000012.json"
std::string TraceAnswerFile(const std::string& id);  // "answer-ID.json"
// Returns the time of the last write of a file, or the earliest time if it is unknown. Traces are
// ordered by this time and not by step, because a restarted run repeats earlier steps.
std::filesystem::file_time_type WrittenAt(const std::string& path);

// Returns an identifier of this process's clock: the host's boot and the time namespace.
std::string ClockOfThisProcess();

// Returns the text of the file. `tasks` have the order in which they are shown. The first span of
// all begins at time 0. The format does not allow spans of a lane that overlap without nesting.
// Such spans are moved to additional lanes of the same name.
std::string TraceText(const std::vector<TracedTask>& tasks, const TraceDescription& description);

}  // namespace muster
