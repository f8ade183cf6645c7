// TraceRecording is the chief's state of one trace: the tasks that record, the steps that they
// record, and the spans that they have delivered. A span is a named interval of time on one lane. A
// lane is a row of the trace, such as one thread. Functions take the current time as an argument.
// TraceService answers the RPCs (proto/trace.proto) and guards this object with its mutex. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/flight/trace_file.h"
#include "proto/trace.pb.h"

namespace muster::chief {

struct TraceRequest {
  std::vector<std::string> tasks;  // The job's tasks, in the order of the trace file.
  bool independent = false;        // True if each worker counts its own steps (parameter servers).
  int steps = 1;                   // The number of steps that each task records.
  Duration limit{};                // Tasks stop recording after this time.
};

class TraceRecording {
 public:
  // Tasks call Align to agree on the first recorded step. A task waits for the other tasks' calls
  // at most until the recording is this old.
  static constexpr Duration kAlign = std::chrono::seconds(2);
  // After the time limit of the recording, tasks may deliver spans for this long.
  static constexpr Duration kDelivery = std::chrono::seconds(3);
  static constexpr size_t kMaxSpans = 500'000;            // Limit for all tasks together.
  static constexpr int kMaxNames = 256, kMaxLanes = 256;  // Limits for each task.

  TraceRecording(TraceRequest request, MonotonicTime now);

  // Notes that the chief asks `task` to record. Returns false if the chief has asked `task` before,
  // or if the job has no such task.
  bool Begin(const std::string& task);
  // Notes that `task` calls Align and is at `step`.
  void Align(const std::string& task, int64_t step, MonotonicTime now);
  // Returns the answer to the task's call of Align: the steps to record. An empty answer tells the
  // task to stop recording. Returns nullopt if the chief must not answer the call yet.
  std::optional<proto::TraceAlignReply> Window(const std::string& task, MonotonicTime now);
  // Stores a piece of a task's spans. `own_clock` names the clock of the chief's process. Returns
  // the reason if the piece is refused, else "".
  std::string Take(const proto::TraceKeepRequest& piece, const std::string& own_clock);

  // Returns true if no further spans are expected.
  bool IsComplete(MonotonicTime now) const;
  // Returns the next time at which a deadline may change the result of Window or IsComplete.
  MonotonicTime NextDeadline(MonotonicTime now) const;

  // Returns the tasks that have delivered spans, in the order of the request.
  std::vector<TracedTask> Delivered() const;
  // Returns one sentence for each task that Delivered omits. The sentence gives the reason.
  std::vector<std::string> Missing() const;

 private:
  struct Member {
    bool server = false;  // True for a ps task.
    bool begun = false, aligned = false, delivered = false;
    int64_t step = 0;
    TracedTask traced;
    std::string refused;  // Why the member's spans were refused, "" if they were not.
  };
  bool WorkersDelivered() const;
  std::string Problem(const Member& member, const proto::TraceKeepRequest& piece) const;

  const TraceRequest request_;
  const Duration align_;  // kAlign, or less if the limit is short.
  const MonotonicTime align_until_, stop_at_, until_;
  std::map<std::string, Member> members_;
  int64_t first_step_ = 0;  // The first recorded step. 0 until the tasks have agreed on it.
  size_t spans_ = 0;
};

}  // namespace muster::chief
