// A fake worker for tests of the Director. Its thread asks for leases, pushes their examples to the
// fake ps tasks and reports them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "muster/handles.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/unit/parameter_server/fake_ps.h"

namespace muster::chief::testing {

// The work that all workers of a cluster have done.
struct WorkDone {
  mutable absl::Mutex mu;
  // How often each batch was pushed completely, by (epoch, begin).
  std::map<std::pair<int64_t, int64_t>, int> batches ABSL_GUARDED_BY(mu);
  // How often each example was evaluated, by split.
  std::map<int, std::vector<int>> evaluated ABSL_GUARDED_BY(mu);
};

class FakeWorker {
 public:
  struct Options {
    int index = 0;
    uint64_t incarnation = 0;
    std::vector<FakePs*> ps;
    std::function<std::string()> leases_address;  // Of the Leases service of the current chief.
    int64_t global_batch_size = 0;                // The value that leases must have.
    Duration batch_time = Duration::zero();
    std::function<bool()> may_train;  // While it returns false, no batch is pushed.
    std::set<Split> damaged;          // Splits whose examples are all damaged.
    WorkDone* done = nullptr;
  };
  // Starts the thread. It ends when the chief has no more work, and after Mute and Kill.
  explicit FakeWorker(Options options);
  ~FakeWorker() { Kill(); }

  uint64_t incarnation() const { return options_.incarnation; }
  bool dead() const { return dead_; }
  void Mute();  // Makes no more calls. Blocks until the thread has ended.
  void Kill();  // Abandons a push too. Blocks until the thread has ended.
  void Join();  // Blocks until the thread has ended by itself.

 private:
  void Run();
  void Connect();
  grpc::Status Call(proto::NextReply* reply);
  // Handles an answer. Returns false if there is no more work.
  bool Take(const proto::NextReply& reply);
  void Work(const proto::Lease& lease);
  void Evaluate(const proto::Lease& lease);
  void Train(const proto::Lease& lease);
  // Pushes a batch to all shards, with newer views if needed. Returns false if the worker must
  // abandon the push or is dead.
  bool PushAll(const proto::Lease& lease);
  // Pushes to the shards that are not in `pushed`.
  void PushTo(double examples, std::map<int, uint64_t>* pushed);
  // Gets a newer view, if there is one. Returns false if the worker must abandon the push.
  bool GetView(std::map<int, uint64_t>* pushed);
  bool Damaged(Split split) const { return options_.damaged.contains(split); }

  const Options options_;
  std::atomic<bool> dead_ = false, mute_ = false;
  // ---- Used only by the thread
  std::string address_;  // The address that stub_ was made for.
  std::unique_ptr<proto::Leases::Stub> stub_;
  bool introduce_ = false;  // The chief has asked for the layout.
  proto::Lease waiting_;    // The lease that may not start yet.
  proto::View view_;
  proto::NextRequest next_;
  std::vector<proto::BatchDone> history_;
  int64_t sequence_ = 0;
  int count_ = -1;               // Its "net.count". -1: the chief has not sent the initial value.
  std::vector<uint64_t> views_;  // BatchDone.views of the last push.
  std::thread thread_;
};

}  // namespace muster::chief::testing
