// A communicator that counts its operations and forwards them to another one. It can abort before a
// chosen operation.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "common/collective/communicator.h"

namespace muster::testing {

class WatchedCommunicator : public collective::Communicator {
 public:
  explicit WatchedCommunicator(std::shared_ptr<collective::Communicator> inner)
      : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string Describe() const override { return inner_->Describe(); }
  collective::WorkPtr AllReduce(collective::Buffer buffer, ReduceOp op) override {
    ++all_reduces;
    Count();
    return inner_->AllReduce(buffer, op);
  }
  collective::WorkPtr Broadcast(collective::Buffer buffer, int root) override {
    most = std::max(most, buffer.bytes());
    Count();
    return inner_->Broadcast(buffer, root);
  }
  collective::WorkPtr AllGather(collective::Buffer send, collective::Buffer receive) override {
    return inner_->AllGather(send, receive);
  }
  collective::WorkPtr ReduceScatter(collective::Buffer send, collective::Buffer receive,
                                    ReduceOp op) override {
    return inner_->ReduceScatter(send, receive, op);
  }
  collective::WorkPtr Barrier() override {
    Count();
    return inner_->Barrier();
  }
  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return inner_->AllocateReducible(bytes);
  }
  void Abort(absl::Status why) override { inner_->Abort(std::move(why)); }
  absl::Status status() const override { return inner_->status(); }
  void set_timeout(Duration timeout) override { inner_->set_timeout(timeout); }

  std::atomic<int> all_reduces = 0;  // Atomic, because autograd's threads also call AllReduce.
  int64_t most = 0;                  // The bytes of the largest broadcast.
  // The number of operations so far, and the operation (from 0) before which to abort. -1: none.
  int operations = 0, breaks_at = -1;

 private:
  void Count() {
    if (operations++ == breaks_at) inner_->Abort(PeerLost("a link is cut"));
  }
  const std::shared_ptr<collective::Communicator> inner_;
};

}  // namespace muster::testing
