// Limits a server's bulk calls: streams that carry much data at the client's pace. A few may run at
// a time, and each must make progress. If the maximum is reached, a new call replaces the one that
// has been without progress the longest. A reactor has one message in flight, so a stalled call
// uses the memory of one message and no thread.
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
    int most = 8;
    // A call without progress is cancelled after this time. The time is long because a chief that
    // fills several servers reads the rows of one while the other calls wait.
    Duration silence = std::chrono::minutes(10);
    // A call without progress for this time may be cancelled to make room for a new call.
    Duration standstill = std::chrono::seconds(10);
  };
  // `ending` is the error message of calls that arrive after Stop.
  BulkCalls(Limits limits, std::string ending);
  ~BulkCalls();  // Calls Stop.

  // One running call, a member of its reactor. A call without progress is cancelled, and its
  // pending reads and writes then fail.
  class Call {
   public:
    // A caller has one call at a time: a new call cancels an earlier one of the same `caller`.
    // Calls with an empty `caller` do not count as one caller.
    Call(BulkCalls* calls, grpc::CallbackServerContext* context, const char* method,
         std::string caller = "")
        : calls_(calls), context_(context), method_(method), caller_(std::move(caller)) {}
    ~Call();
    // Starts the call. Returns RESOURCE_EXHAUSTED if too many calls run, UNAVAILABLE after Stop.
    // The reactor must then finish with this status. Must be called at most once.
    grpc::Status Admit();
    // Reports progress: one message has passed. REQUIRES: Admit returned OK.
    void Passed();

   private:
    friend class BulkCalls;
    BulkCalls* const calls_;
    grpc::CallbackServerContext* const context_;
    const char* const method_;
    const std::string caller_;
    // Guarded by calls_->mu_.
    MonotonicTime since_, until_;  // The latest progress, and the time at which it is cancelled.
    bool admitted_ = false, cancelled_ = false;
    std::list<Call*>::iterator place_;
  };

  // Cancels all calls and blocks until they have ended. Later calls are refused.
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
