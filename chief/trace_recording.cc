#include "chief/trace_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/peer_text.h"
#include "common/cluster/task.h"
#include "common/cluster/verdict.h"

namespace muster::chief {
namespace {

constexpr size_t kMaxName = 100;
// About 146 years. The sum of two such times does not overflow.
constexpr int64_t kMaxTime = int64_t{1} << 62;

bool IsTime(int64_t ns) { return ns > -kMaxTime && ns < kMaxTime; }

}  // namespace

TraceRecording::TraceRecording(TraceRequest request, MonotonicTime now)
    : request_(std::move(request)),
      align_(std::min<Duration>(kAlign, request_.limit / 2)),
      align_until_(now + align_),
      stop_at_(now + request_.limit),
      until_(stop_at_ + kDelivery) {
  for (const std::string& task : request_.tasks) {
    Member& member = members_[task];
    const std::optional<TaskId> id = ParseTaskId(task);
    member.server = id && id->type == TaskType::kPs;
    member.traced.task = task;
  }
}

bool TraceRecording::Begin(const std::string& task) {
  const auto found = members_.find(task);
  return found != members_.end() && !std::exchange(found->second.begun, true);
}

void TraceRecording::Align(const std::string& task, int64_t step, MonotonicTime now) {
  const auto found = members_.find(task);
  if (found == members_.end()) return;
  found->second.aligned = true;
  found->second.step = std::clamp<int64_t>(step, 0, kMaxTime);
  // The steps are fixed once all tasks are there, or the time for it has passed.
  const bool all = std::all_of(members_.begin(), members_.end(), [](const auto& member) {
    return member.second.aligned || member.second.server;
  });
  if (first_step_ > 0 || (!all && now < align_until_)) return;
  for (const auto& [name, member] : members_)
    if (!member.server) first_step_ = std::max(first_step_, member.step + 1);
}

std::optional<proto::TraceAlignReply> TraceRecording::Window(const std::string& task,
                                                             MonotonicTime now) {
  proto::TraceAlignReply reply;
  const auto found = members_.find(task);
  if (now >= stop_at_ || found == members_.end()) return reply;
  if (found->second.server) return WorkersDelivered() ? std::optional(reply) : std::nullopt;
  if (first_step_ == 0 && now >= align_until_) Align(task, found->second.step, now);
  if (first_step_ == 0) return std::nullopt;
  if (request_.independent) {
    reply.set_count(request_.steps);
  } else {
    reply.set_first_step(first_step_);
    reply.set_last_step(first_step_ + request_.steps - 1);
  }
  return reply;
}

bool TraceRecording::WorkersDelivered() const {
  return std::all_of(members_.begin(), members_.end(), [this](const auto& member) {
    // A worker that came to Align after the others records as well.
    return member.second.delivered || member.second.server ||
           (first_step_ > 0 && !member.second.aligned);
  });
}

std::string TraceRecording::Problem(const Member& member,
                                    const proto::TraceKeepRequest& piece) const {
  const TracedTask& traced = member.traced;
  const size_t names = traced.names.size() + static_cast<size_t>(piece.names_size());
  const size_t lanes = traced.lanes.size() + static_cast<size_t>(piece.lanes_size());
  if (names > kMaxNames)
    return fmt::format("it has {} names of spans, more than {}", names, kMaxNames);
  if (lanes > kMaxLanes) return fmt::format("it has {} lanes, more than {}", lanes, kMaxLanes);
  if (spans_ + static_cast<size_t>(piece.spans_size()) > kMaxSpans)
    return fmt::format("the trace is full, with {} spans of other tasks", spans_);
  for (const proto::TraceSpan& span : piece.spans())
    if (span.name() >= names || span.lane() >= lanes || !IsTime(span.begin_ns()) ||
        !IsTime(span.duration_ns()) || span.duration_ns() < 0)
      return "its spans are damaged";
  if (!IsTime(piece.clock().offset_ns())) return "its clock is damaged";
  return "";
}

std::string TraceRecording::Take(const proto::TraceKeepRequest& piece,
                                 const std::string& own_clock) {
  const auto found = members_.find(piece.task());
  if (found == members_.end()) return "it is no task of this trace";
  Member& member = found->second;
  if (!member.begun || member.delivered) return "nothing is expected of it";
  if (member.refused.empty()) member.refused = Problem(member, piece);
  if (!member.refused.empty()) return member.refused;
  TracedTask& traced = member.traced;
  for (const std::string& name : piece.names())
    traced.names.push_back(SanitizePeerText(name, kMaxName));
  for (const std::string& lane : piece.lanes())
    traced.lanes.push_back(SanitizePeerText(lane, kMaxName));
  for (const proto::TraceSpan& span : piece.spans())
    traced.spans.push_back({.name = span.name(),
                            .lane = span.lane(),
                            .begin_ns = span.begin_ns(),
                            .duration_ns = span.duration_ns(),
                            .step = span.step(),
                            .bytes = span.bytes(),
                            .sequence = span.sequence(),
                            .index = span.index(),
                            .truncated = span.truncated()});
  spans_ += static_cast<size_t>(piece.spans_size());
  if (!piece.host().empty()) {
    traced.host = SanitizePeerText(piece.host(), kMaxName);
    traced.pid = piece.pid();
    traced.lost_spans = piece.lost_spans();
    traced.first_step = piece.first_step();
    traced.last_step = piece.last_step();
  }
  if (piece.has_clock()) {
    traced.clock = {piece.clock().clock(), piece.clock().offset_ns(), piece.clock().error_ns(),
                    piece.clock().round_trips()};
    traced.clock.shared = traced.clock.clock == own_clock;
    if (traced.clock.shared) traced.clock.offset_ns = traced.clock.error_ns = 0;
  }
  member.delivered = piece.last();
  return "";
}

bool TraceRecording::IsComplete(MonotonicTime now) const {
  if (now >= until_) return true;
  return std::all_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const Member& member = entry.second;
    if (member.delivered || !member.refused.empty()) return true;
    // Does not wait for a task that has not even come within the time for it.
    return !member.aligned && now >= align_until_ && (!member.begun || WorkersDelivered());
  });
}

MonotonicTime TraceRecording::NextDeadline(MonotonicTime now) const {
  if (now < align_until_) return align_until_;
  return now < stop_at_ ? stop_at_ : until_;
}

std::vector<TracedTask> TraceRecording::Delivered() const {
  std::vector<TracedTask> tasks;
  for (const std::string& task : request_.tasks)
    if (const Member& member = members_.at(task); member.delivered && !member.traced.spans.empty())
      tasks.push_back(member.traced);
  return tasks;
}

std::vector<std::string> TraceRecording::Missing() const {
  std::vector<std::string> missing;
  for (const std::string& task : request_.tasks) {
    const Member& member = members_.at(task);
    std::string why;
    if (!member.refused.empty()) {
      why = member.refused;
    } else if (!member.begun) {
      why = "it was not connected to the chief";
    } else if (!member.aligned) {
      why = fmt::format("it did not answer within {:g} s", Seconds(align_));
    } else if (!member.delivered) {
      why = fmt::format("it did not deliver its spans within {:g} s",
                        Seconds(request_.limit + kDelivery));
    } else if (member.traced.spans.empty()) {
      why = fmt::format("it began none of the steps within {:g} s", Seconds(request_.limit));
    } else {
      continue;
    }
    missing.push_back(fmt::format("{}: {}", TaskText(task), why));
  }
  return missing;
}

}  // namespace muster::chief
