// Records the part of one process in traces. A trace shows what the threads of all tasks do during
// a few training steps. The command `muster trace` requests a trace from the chief.
//
// A TraceClient has one thread, which keeps an Await call open at the chief. When a trace begins,
// the chief answers the call. The TraceClient then records the spans of this process
// (common/flight/spans.h), measures the offset between this process's clock and the chief's clock,
// and sends the spans and the offset to the chief.
//
// Thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/flight/spans.h"
#include "proto/trace.grpc.pb.h"

namespace muster {

struct TraceClientOptions {
  // Returns the channel to the current chief.
  std::function<std::shared_ptr<grpc::Channel>()> channel;
  std::string task, cluster_digest, host;
  int64_t pid = 0;
  std::shared_ptr<SpanRecorder> recorder;
  Duration hold = std::chrono::seconds(30);  // Deadline of an Await call. Another call follows.
  Duration retry = std::chrono::seconds(2);  // Delay after an Await call that has failed.
  // Deadline of calls that the chief answers at once.
  Duration deadline = std::chrono::seconds(5);
};

class TraceClient {
 public:
  explicit TraceClient(TraceClientOptions options);
  // Ends a recording in progress, and sends its spans to the chief.
  ~TraceClient();

 private:
  void Run();
  // Makes one Await call. Returns true if a trace begins, and sets `*reply`. Returns false if the
  // call has failed or its deadline has passed.
  bool Await(proto::TraceAwaitReply* reply);
  void Record(const proto::TraceAwaitReply& begun);
  void Align(uint64_t id, MonotonicTime until);
  proto::TraceClockOffset MeasureClock();
  void Deliver(uint64_t id, const SpanRecord& record, const proto::TraceClockOffset& clock);
  // Returns a context with a deadline `limit` from now. ~TraceClient cancels the call that uses
  // this context.
  std::shared_ptr<grpc::ClientContext> HeldContext(Duration limit);
  std::unique_ptr<proto::Trace::Stub> Stub() const;

  const TraceClientOptions options_;
  absl::Mutex mu_;
  CondVar changed_;
  std::shared_ptr<grpc::ClientContext> held_ ABSL_GUARDED_BY(mu_);
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  bool useless_ = false;  // True if the chief makes no traces of this task. Used only by thread_.
  std::thread thread_;    // The last member, because it uses the others.
};

// One call that reads the peer's clock. The call begins at `begin_ns` and ends at `end_ns` by this
// process's clock. `theirs_ns` is the time in the peer's answer.
struct ClockRoundTrip {
  int64_t begin_ns = 0, end_ns = 0, theirs_ns = 0;
};
// offset_ns is the peer's clock minus this process's clock. error_ns is the largest possible error
// of offset_ns.
struct MeasuredOffset {
  int64_t offset_ns = 0, error_ns = 0;
};
// Computes the offset from the shortest round trip. Returns zeros if there are no round trips.
MeasuredOffset OffsetOf(const std::vector<ClockRoundTrip>& round_trips);

// Returns the messages that deliver `record`. Each message is smaller than rpc::kMaxRequestBytes.
std::vector<proto::TraceKeepRequest> TracePieces(const SpanRecord& record);

}  // namespace muster
