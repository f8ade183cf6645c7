// The file of `muster trace`: Chrome's trace event format, a JSON object that Perfetto
// (ui.perfetto.dev) and chrome://tracing open. A process of the trace is a task, a thread of it a
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
};

// How the clock of a task relates to that of the chief.
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
  std::vector<std::string> missing;  // One sentence for each task that is left out.
};

// The names in model_dir/trace: of the file of a trace from its first step on, of a request to the
// chief, and of the answer to it.
inline constexpr char kTraceFolder[] = "trace";
inline constexpr char kTracePrefix[] = "step-";
inline constexpr char kTraceRequestFile[] = "request.json";
inline constexpr char kTraceAnswerPrefix[] = "answer-";
std::string TraceFile(int64_t first_step);           // "step-00000012.json"
std::string TraceAnswerFile(const std::string& id);  // "answer-ID.json"
// Returns when a file was last written, the earliest time if that is unknown. Steps do not order
// traces: a run that starts again makes earlier steps later.
std::filesystem::file_time_type WrittenAt(const std::string& path);

// Returns the clock of this process: the boot of the host and the time namespace.
std::string ClockOfThisProcess();

// Returns the text of the file. `tasks` have the order in which they are shown. The first span of
// all begins at time 0. Spans of one lane that overlap without nesting, which the format does not
// allow, go to further lanes of the same name.
std::string TraceText(const std::vector<TracedTask>& tasks, const TraceDescription& description);

}  // namespace muster
