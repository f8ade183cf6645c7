// Limits a server's bulk calls: long streams whose speed the client determines, for example the
// transfer of a checkpoint. Only a few bulk calls may run at a time. When the maximum is reached, a
// new call may replace the call that has been without progress for the longest time. This time must
// be at least Limits::standstill. Otherwise the new call is refused. A bulk call has one message in
// flight, so a stalled call uses the memory of one message and no thread.
#pragma once

#include <grpcpp/server_context.h>

#include <list>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/wait.h"

namespace muster::rpc {
// Thread-safe. Must outlive its calls.
class BulkCalls {
 public:
  struct Limits {
    int most = 8;  // Maximum number of calls at a time.
    // A call is cancelled if it makes no progress for this time. The default is long because a
    // chief sends state to several parameter servers at the same time. While the chief reads the
    // rows for one server, its calls to the other servers make no progress.
    Duration silence = std::chrono::minutes(10);
    // A new call may replace a call that has made no progress for at least this time.
    Duration standstill = std::chrono::seconds(10);
  };
  // `ending` is the error message for calls that arrive after Stop.
  BulkCalls(Limits limits, std::string ending);
  ~BulkCalls();  // Calls Stop.

  // One bulk call. The call's gRPC reactor owns this object as a field. When BulkCalls cancels the
  // call, the reactor's pending reads and writes fail.
  class Call {
   public:
    // `caller` identifies the client. Unless `caller` is empty, Admit cancels an earlier call of
    // the same `caller`.
    Call(BulkCalls* calls, grpc::CallbackServerContext* context, const char* method,
         std::string caller = "")
        : calls_(calls), context_(context), method_(method), caller_(std::move(caller)) {}
    ~Call();
    // Starts the call. Returns RESOURCE_EXHAUSTED if too many calls run, and UNAVAILABLE after
    // Stop. After an error, the reactor must finish with this status. Must be called at most once.
    grpc::Status Admit();
    // Reports progress: one message was read or written. REQUIRES: Admit returned OK.
    void Passed();
    // Reports that the reactor is about to finish the call. The call then no longer counts towards
    // Limits::most, so the client may start its next call when it receives the status.
    void Done();

   private:
    friend class BulkCalls;
    BulkCalls* const calls_;
    grpc::CallbackServerContext* const context_;
    const char* const method_;
    const std::string caller_;
    // calls_->mu_ guards the fields below.
    // The time of the latest progress, and the time at which BulkCalls cancels this call.
    MonotonicTime since_, until_;
    bool admitted_ = false;
    bool over_ = false;  // Cancelled or done.
    std::list<Call*>::iterator place_;
  };

  // Cancels all calls and blocks until they have ended. New calls are then refused.
  void Stop();

 private:
  void Run();
  bool MakeRoomLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Cancel(Call* call);

  const Limits limits_;
  const std::string ending_;
  absl::Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Call*> under_way_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace muster::rpc
