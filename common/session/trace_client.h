// A TraceClient takes part in the traces of `muster trace` for one process. It keeps one call open
// at the chief. When a trace begins, the process records its spans, measures the offset of its
// clock, and delivers both. One thread, which waits nearly always.
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
  Duration hold = std::chrono::seconds(30);  // The deadline of the open call. It is then renewed.
  Duration retry = std::chrono::seconds(2);  // Between attempts, while the chief is not reached.
  Duration deadline = std::chrono::seconds(5);  // Of a call that the chief answers at once.
};

class TraceClient {
 public:
  explicit TraceClient(TraceClientOptions options);
  // Ends a recording in progress, and delivers what it has.
  ~TraceClient();

 private:
  void Run();
  // Blocks until a trace begins. Returns false if none did, or if the chief has no traces.
  bool Await(proto::TraceAwaitReply* reply);
  void Record(const proto::TraceAwaitReply& begun);
  void Align(uint64_t id, MonotonicTime until);
  proto::TraceClockOffset MeasureClock();
  void Deliver(uint64_t id, const SpanRecord& record, const proto::TraceClockOffset& clock);
  // Returns a context that the destructor cancels.
  std::shared_ptr<grpc::ClientContext> HeldContext(Duration limit);
  std::unique_ptr<proto::Trace::Stub> Stub() const;

  const TraceClientOptions options_;
  absl::Mutex mu_;
  CondVar changed_;
  std::shared_ptr<grpc::ClientContext> held_ ABSL_GUARDED_BY(mu_);
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  bool useless_ = false;  // The chief does not serve traces. Used only by the thread.
  std::thread thread_;    // The last member, because it uses the others.
};

// A round trip of a call that returns the other side's clock: when it began and ended here, and the
// other side's time in between, all in nanoseconds.
struct ClockRoundTrip {
  int64_t begin_ns = 0, end_ns = 0, theirs_ns = 0;
};
// Returns their clock minus ours by the shortest round trip, and how wrong it may be.
struct MeasuredOffset {
  int64_t offset_ns = 0, error_ns = 0;
};
MeasuredOffset OffsetOf(const std::vector<ClockRoundTrip>& round_trips);

// Returns the messages that deliver a record, each below the limit of a request.
std::vector<proto::TraceKeepRequest> TracePieces(const SpanRecord& record);

}  // namespace muster
