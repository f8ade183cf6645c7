#include "common/flight/trace_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>

#include "common/base/files/files.h"
#include "common/base/json/utf8.h"
#include "common/cluster/verdict.h"
#include "muster/json.h"

namespace muster {
namespace {

std::string Quoted(const std::string& text) { return Json(ValidUtf8(text)).dump(); }

// The order of spans in the file: by start, and an outer span before an inner one.
bool Before(const TracedSpan& a, const TracedSpan& b) {
  if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
  return a.duration_ns > b.duration_ns;
}

// Distributes the spans of a lane over rows, in each of which spans nest or do not overlap.
class Rows {
 public:
  // Returns the row of the span. Spans come in the order of Before.
  int Place(const TracedSpan& span) {
    const int64_t end = span.begin_ns + span.duration_ns;
    for (size_t row = 0;; ++row) {
      if (row == open_.size()) open_.emplace_back();
      std::vector<int64_t>& ends = open_[row];  // The ends of the open spans, the innermost last.
      while (!ends.empty() && ends.back() <= span.begin_ns) ends.pop_back();
      if (!ends.empty() && ends.back() < end) continue;
      ends.push_back(end);
      return static_cast<int>(row);
    }
  }
  int count() const { return static_cast<int>(open_.size()); }

 private:
  std::vector<std::vector<int64_t>> open_;
};

class Writer {
 public:
  explicit Writer(int64_t zero_ns) : zero_ns_(zero_ns) {}

  void Task(int pid, const TracedTask& task);
  std::string Finish(const std::vector<TracedTask>& tasks, const TraceDescription& description);

 private:
  void Line(const std::string& line) {
    text_ += text_.empty() ? "{\"traceEvents\":[\n" : ",\n";
    text_ += line;
  }
  void Meta(int pid, int tid, const char* name, const std::string& args) {
    Line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", pid, tid, name,
                     args));
  }
  void SpanLine(int pid, int tid, const TracedTask& task, const TracedSpan& span);

  const int64_t zero_ns_;
  std::string text_;
};

void Writer::SpanLine(int pid, int tid, const TracedTask& task, const TracedSpan& span) {
  const std::string& name = task.names[span.name];
  std::string args = fmt::format(R"("step":{})", span.step);
  if (span.sequence > 0) args += fmt::format(R"(,"sequence":{})", span.sequence);
  if (span.bytes > 0) args += fmt::format(R"(,"bytes":{})", span.bytes);
  if (span.truncated) args += R"(,"truncated":true)";
  const std::string shown = span.index < 0 ? name : fmt::format("{} {}", name, span.index);
  const double begin = static_cast<double>(span.begin_ns + task.clock.offset_ns - zero_ns_) / 1000;
  Line(fmt::format(
      R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":{},"args":{{{}}}}})",
      pid, tid, begin, static_cast<double>(span.duration_ns) / 1000, Quoted(shown), Quoted(name),
      args));
}

void Writer::Task(int pid, const TracedTask& task) {
  Meta(pid, 0, "process_name",
       fmt::format("\"name\":{}", Quoted(fmt::format("{} ({}, pid {})", TaskText(task.task),
                                                     task.host, task.pid))));
  Meta(pid, 0, "process_sort_index", fmt::format("\"sort_index\":{}", pid));
  std::vector<TracedSpan> spans = task.spans;
  std::sort(spans.begin(), spans.end(), Before);
  int tid = 0;
  for (uint32_t lane = 0; lane < task.lanes.size(); ++lane) {
    Rows rows;
    const int first = tid + 1;
    for (const TracedSpan& span : spans)
      if (span.lane == lane) SpanLine(pid, first + rows.Place(span), task, span);
    for (int row = 0; row < rows.count(); ++row) {
      Meta(pid, ++tid, "thread_name", fmt::format("\"name\":{}", Quoted(task.lanes[lane])));
      Meta(pid, tid, "thread_sort_index", fmt::format("\"sort_index\":{}", tid));
    }
  }
}

std::string Writer::Finish(const std::vector<TracedTask>& tasks,
                           const TraceDescription& description) {
  Json other = {{"run_id", description.run_id}, {"missing", description.missing}};
  other["tasks"] = Json::array();
  for (const TracedTask& task : tasks) {
    other["tasks"].push_back({{"task", task.task},
                              {"host", ValidUtf8(task.host)},
                              {"pid", task.pid},
                              {"first_step", task.first_step},
                              {"last_step", task.last_step},
                              {"lost_spans", task.lost_spans},
                              {"clock",
                               {{"shared", task.clock.shared},
                                {"offset_us", static_cast<double>(task.clock.offset_ns) / 1000},
                                {"error_us", static_cast<double>(task.clock.error_ns) / 1000},
                                {"round_trips", task.clock.round_trips}}}});
  }
  if (text_.empty()) text_ = "{\"traceEvents\":[";
  text_ += "\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":" + other.dump() + "}\n";
  return std::move(text_);
}

}  // namespace

std::string TraceFile(int64_t first_step) {
  return fmt::format("{}{:08}.json", kTracePrefix, first_step);
}
std::string TraceAnswerFile(const std::string& id) {
  return fmt::format("{}{}.json", kTraceAnswerPrefix, id);
}

std::filesystem::file_time_type WrittenAt(const std::string& path) {
  std::error_code error;
  const auto at = std::filesystem::last_write_time(path, error);
  return error ? std::filesystem::file_time_type::min() : at;
}

std::string ClockOfThisProcess() {
  char target[64] = {};
  const ssize_t size = readlink("/proc/self/ns/time", target, sizeof target - 1);
  return fmt::format("{} {}", FirstLineOf("/proc/sys/kernel/random/boot_id"),
                     size > 0 ? target : "");
}

std::string TraceText(const std::vector<TracedTask>& tasks, const TraceDescription& description) {
  int64_t zero = std::numeric_limits<int64_t>::max();
  for (const TracedTask& task : tasks)
    for (const TracedSpan& span : task.spans)
      zero = std::min(zero, span.begin_ns + task.clock.offset_ns);
  Writer writer(zero);
  for (size_t i = 0; i < tasks.size(); ++i) writer.Task(static_cast<int>(i) + 1, tasks[i]);
  return writer.Finish(tasks, description);
}

}  // namespace muster
