#include "common/session/trace_client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/logging.h"
#include "common/flight/trace_file.h"
#include "common/rpc/channel.h"

namespace muster {
namespace {

constexpr size_t kSpansOfPiece = 8192;  // About 300 KB.
// The chief answers these calls at once, so a few are enough to find a quick one.
constexpr int kRoundTrips = 16;
// A clock call that takes longer says little of the offset.
constexpr Duration kClockDeadline = std::chrono::seconds(1);

int64_t Nanoseconds(MonotonicTime at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

bool IsFinal(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::PERMISSION_DENIED ||
         code == grpc::StatusCode::INVALID_ARGUMENT ||
         code == grpc::StatusCode::FAILED_PRECONDITION;
}

}  // namespace

MeasuredOffset OffsetOf(const std::vector<ClockRoundTrip>& round_trips) {
  if (round_trips.empty()) return {};
  const ClockRoundTrip& best = *std::min_element(
      round_trips.begin(), round_trips.end(),
      [](const auto& a, const auto& b) { return a.end_ns - a.begin_ns < b.end_ns - b.begin_ns; });
  const int64_t half = (best.end_ns - best.begin_ns) / 2;
  return {.offset_ns = best.theirs_ns - (best.begin_ns + half), .error_ns = half + 1};
}

std::vector<proto::TraceKeepRequest> TracePieces(const SpanRecord& record) {
  std::vector<proto::TraceKeepRequest> pieces(1);
  std::map<std::string, uint32_t> names;
  // Only lanes that have spans: a process may have had far more threads than were busy.
  std::map<int, uint32_t> lanes;
  for (const SpanEvent& span : record.spans) {
    if (static_cast<size_t>(pieces.back().spans_size()) == kSpansOfPiece) pieces.emplace_back();
    const auto [name, is_new] = names.emplace(span.name, static_cast<uint32_t>(names.size()));
    if (is_new) pieces.front().add_names(span.name);
    proto::TraceSpan* out = pieces.back().add_spans();
    out->set_name(name->second);
    const auto [lane, is_new_lane] = lanes.emplace(span.lane, static_cast<uint32_t>(lanes.size()));
    if (is_new_lane) pieces.front().add_lanes(record.lanes[static_cast<size_t>(span.lane)]);
    out->set_lane(lane->second);
    out->set_begin_ns(Nanoseconds(span.begin));
    out->set_duration_ns(std::max<int64_t>(0, Nanoseconds(span.end) - Nanoseconds(span.begin)));
    out->set_step(span.step);
    out->set_bytes(span.bytes);
    out->set_sequence(span.sequence);
    out->set_index(span.index);
    out->set_truncated(span.truncated);
  }
  proto::TraceKeepRequest& first = pieces.front();
  first.set_lost_spans(record.lost_spans);
  first.set_first_step(record.first_step);
  first.set_last_step(record.last_step);
  pieces.back().set_last(true);
  return pieces;
}

TraceClient::TraceClient(TraceClientOptions options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

TraceClient::~TraceClient() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    if (held_ != nullptr) held_->TryCancel();
    changed_.SignalAll();
  }
  options_.recorder->Wake();
  thread_.join();
}

std::unique_ptr<proto::Trace::Stub> TraceClient::Stub() const {
  return proto::Trace::NewStub(options_.channel());
}

std::shared_ptr<grpc::ClientContext> TraceClient::HeldContext(Duration limit) {
  std::shared_ptr<grpc::ClientContext> context = rpc::WithDeadline(limit);
  absl::MutexLock lock(&mu_);
  held_ = context;
  if (exiting_) context->TryCancel();
  return context;
}

void TraceClient::Run() {
  while (!useless_) {
    proto::TraceAwaitReply begun;
    if (Await(&begun)) Record(begun);
    absl::MutexLock lock(&mu_);
    if (exiting_) return;
  }
}

bool TraceClient::Await(proto::TraceAwaitReply* reply) {
  proto::TraceAwaitRequest request;
  request.set_task(options_.task);
  request.set_cluster_digest(options_.cluster_digest);
  const auto context = HeldContext(options_.hold);
  const grpc::Status status = Stub()->Await(context.get(), request, reply);
  absl::MutexLock lock(&mu_);
  held_ = nullptr;
  if (exiting_) return false;
  if (status.ok()) return true;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return false;  // Nobody asked.
  useless_ = IsFinal(status.error_code());
  if (useless_) LogDebug("the chief makes no traces of this task: {}", status.error_message());
  const MonotonicTime again = Clock::now() + options_.retry;
  while (!exiting_ && !useless_)
    if (changed_.WaitUntil(&mu_, again)) break;
  return false;
}

void TraceClient::Record(const proto::TraceAwaitReply& begun) {
  const MonotonicTime until =
      Clock::now() + std::chrono::milliseconds(std::clamp<int64_t>(begun.limit_ms(), 0, 3'600'000));
  options_.recorder->Start();
  Align(begun.id(), until);
  const proto::TraceClockOffset before = MeasureClock();
  options_.recorder->WaitDone(until);
  const SpanRecord record = options_.recorder->Stop();
  // The second measurement is on a channel that is in use, and usually the better one.
  const proto::TraceClockOffset after = MeasureClock();
  const bool better = after.round_trips() > 0 &&
                      (before.round_trips() == 0 || after.error_ns() < before.error_ns());
  Deliver(begun.id(), record, better ? after : before);
}

void TraceClient::Align(uint64_t id, MonotonicTime until) {
  SpanRecorder& recorder = *options_.recorder;
  proto::TraceAlignRequest request;
  request.set_task(options_.task);
  request.set_id(id);
  request.set_step(recorder.step());
  proto::TraceAlignReply reply;
  const auto context = HeldContext(until - Clock::now() + options_.deadline);
  const grpc::Status status = Stub()->Align(context.get(), request, &reply);
  {
    absl::MutexLock lock(&mu_);
    held_ = nullptr;
  }
  if (!status.ok() || (reply.count() == 0 && reply.last_step() == 0)) {
    recorder.Wake();
  } else if (reply.count() > 0) {
    recorder.SetCount(reply.count());
  } else {
    recorder.SetSteps(reply.first_step(), reply.last_step());
  }
}

proto::TraceClockOffset TraceClient::MeasureClock() {
  std::vector<ClockRoundTrip> round_trips;
  const auto stub = Stub();
  for (int i = 0; i < kRoundTrips; ++i) {
    const auto context = rpc::WithDeadline(kClockDeadline);
    proto::TraceClockReply reply;
    const int64_t begin = Nanoseconds(Clock::now());
    if (!stub->Clock(context.get(), proto::TraceClockRequest(), &reply).ok()) break;
    round_trips.push_back({begin, Nanoseconds(Clock::now()), reply.monotonic_ns()});
  }
  const MeasuredOffset measured = OffsetOf(round_trips);
  proto::TraceClockOffset offset;
  offset.set_clock(ClockOfThisProcess());
  offset.set_offset_ns(measured.offset_ns);
  offset.set_error_ns(measured.error_ns);
  offset.set_round_trips(static_cast<int>(round_trips.size()));
  return offset;
}

void TraceClient::Deliver(uint64_t id, const SpanRecord& record,
                          const proto::TraceClockOffset& clock) {
  std::vector<proto::TraceKeepRequest> pieces = TracePieces(record);
  *pieces.front().mutable_clock() = clock;
  pieces.front().set_host(options_.host);
  pieces.front().set_pid(options_.pid);
  for (proto::TraceKeepRequest& piece : pieces) {
    piece.set_task(options_.task);
    piece.set_id(id);
    proto::TraceKeepReply reply;
    const grpc::Status status =
        Stub()->Keep(rpc::WithDeadline(options_.deadline).get(), piece, &reply);
    if (status.ok() && reply.kept()) continue;
    return LogDebug("the spans of this task are not kept: {}",
                    status.ok() ? reply.reason() : status.error_message());
  }
}

}  // namespace muster
