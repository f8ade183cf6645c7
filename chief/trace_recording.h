// The state of one trace at the chief: which tasks record, which steps, and what they have
// delivered. A plain object that decides by the time it is given. TraceService guards it and
// answers the calls.
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
  std::vector<std::string> tasks;  // The tasks of the job, in the order of the file.
  bool independent = false;        // Workers have steps of their own (parameter servers).
  int steps = 1;
  Duration limit{};  // Tasks stop recording after this time.
};

class TraceRecording {
 public:
  // A task that has not called Align after this time does not hold up the others.
  static constexpr Duration kAlign = std::chrono::seconds(2);
  // The time for the delivery after the tasks have stopped recording.
  static constexpr Duration kDelivery = std::chrono::seconds(3);
  // Limits of what is taken from tasks.
  static constexpr size_t kMaxSpans = 500'000;  // Of all tasks.
  static constexpr int kMaxNames = 256, kMaxLanes = 256;

  TraceRecording(TraceRequest request, MonotonicTime now);

  // Says that the task was asked to record. Returns false if it was before, or is no task of the
  // job.
  bool Begin(const std::string& task);
  // Says that the task is at `step`.
  void Align(const std::string& task, int64_t step, MonotonicTime now);
  // Returns the answer to the task's call of Align, nullopt if it must be held.
  std::optional<proto::TraceAlignReply> Window(const std::string& task, MonotonicTime now);
  // Takes a piece. Returns why it was refused, "" if it was taken.
  std::string Take(const proto::TraceKeepRequest& piece, const std::string& own_clock);

  // Returns whether nothing more is expected.
  bool IsComplete(MonotonicTime now) const;
  // Returns the time at which Window or IsComplete may change without an event.
  MonotonicTime NextDeadline(MonotonicTime now) const;

  // The delivered tasks, in the order of the request, and a sentence for each other one.
  std::vector<TracedTask> Delivered() const;
  std::vector<std::string> Missing() const;

 private:
  struct Member {
    bool begun = false, aligned = false, delivered = false;
    int64_t step = 0;
    TracedTask traced;
    std::string refused;  // Why its spans were refused.
  };
  bool WorkersDelivered() const;
  std::string Problem(const Member& member, const proto::TraceKeepRequest& piece) const;

  const TraceRequest request_;
  const Duration align_;  // kAlign, or less if the limit is short.
  const MonotonicTime align_until_, stop_at_, until_;
  std::map<std::string, Member> members_;
  int64_t first_step_ = 0;  // 0 until the steps are known.
  size_t spans_ = 0;
};

}  // namespace muster::chief
