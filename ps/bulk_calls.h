// Calls that take a thread for as long as the other side lets them: a few at a time, and none
// without progress for long. A newcomer takes the place of the one that has stood still the
// longest.
#pragma once

#include <grpcpp/server_context.h>

#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/wait.h"

namespace muster {

// Thread-safe. Outlives its calls.
class BulkCalls {
 public:
  struct Limits {
    int most = 8;
    // A chief that fills several servers reads one's rows while the others wait.
    Duration silence = std::chrono::minutes(10);
    Duration standstill = std::chrono::seconds(10);  // after which it gives way to a newcomer
  };
  explicit BulkCalls(Limits limits);
  ~BulkCalls();

  // One call, on its own thread. A call that stands still is cancelled: what it waits for returns.
  class Call {
   public:
    Call(BulkCalls* calls, grpc::ServerContext* context, const char* method);
    ~Call();
    // Not OK: there are too many, and it must end at once.
    const grpc::Status& admitted() const { return admitted_; }
    void Passed();  // a piece has

   private:
    friend class BulkCalls;
    BulkCalls* const calls_;
    grpc::ServerContext* const context_;
    const char* const method_;
    grpc::Status admitted_;
    // Guarded by the mutex of calls_.
    MonotonicTime since_, until_;
    bool cancelled_ = false;
    std::list<Call*>::iterator place_;
  };

 private:
  void Run();
  bool MakeRoomLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  absl::Mutex mu_;
  CondVar changed_;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Call*> under_way_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace muster
