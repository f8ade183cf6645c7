// Limits the streams whose length in time the peer determines. A few may run at a time, and each
// must make progress. Beyond that number, a new stream replaces the one that has stalled the
// longest. A reactor has one message in flight, so a stalled stream costs one message and no
// thread.
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
    // A chief that fills several servers reads one's rows while the others wait.
    Duration silence = std::chrono::minutes(10);
    Duration standstill = std::chrono::seconds(10);  // after which it gives way to a newcomer
  };
  // `ending` is the error message of calls that come after Stop.
  BulkCalls(Limits limits, std::string ending);
  ~BulkCalls();  // Stop

  // A part of a reactor, and gone with it. One that stands still is cancelled: what it waits for
  // fails.
  class Call {
   public:
    // Of the calls with the same `caller` that is not empty, only the newest goes on.
    Call(BulkCalls* calls, grpc::CallbackServerContext* context, const char* method,
         std::string caller = "")
        : calls_(calls), context_(context), method_(method), caller_(std::move(caller)) {}
    ~Call();
    // Once. Not OK: there are too many, and it must end at once.
    grpc::Status Admit();
    void Passed();  // a piece has; REQUIRES: it was admitted

   private:
    friend class BulkCalls;
    BulkCalls* const calls_;
    grpc::CallbackServerContext* const context_;
    const char* const method_;
    const std::string caller_;
    // Guarded by the mutex of calls_.
    MonotonicTime since_, until_;
    bool admitted_ = false, cancelled_ = false;
    std::list<Call*>::iterator place_;
  };

  // Cancels all calls, and returns when they have ended. None is admitted any more.
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
