// The training loop's handle to a communicator. The handle owns the communicator and forwards all
// calls to the communicator. CommunicatorRegistry has a weak reference, through which the Member
// can abort the communicator.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/collective/communicator.h"

namespace muster::membership {

class HeldCommunicator final : public collective::Communicator {
 public:
  explicit HeldCommunicator(std::shared_ptr<collective::Communicator> held)
      : held_(std::move(held)) {}

  int rank() const override { return held_->rank(); }
  int size() const override { return held_->size(); }
  std::string Describe() const override { return held_->Describe(); }
  collective::WorkPtr AllReduce(collective::Buffer buffer, ReduceOp op) override {
    return held_->AllReduce(buffer, op);
  }
  collective::WorkPtr Broadcast(collective::Buffer buffer, int root) override {
    return held_->Broadcast(buffer, root);
  }
  collective::WorkPtr AllGather(collective::Buffer send, collective::Buffer receive) override {
    return held_->AllGather(send, receive);
  }
  collective::WorkPtr ReduceScatter(collective::Buffer send, collective::Buffer receive,
                                    ReduceOp op) override {
    return held_->ReduceScatter(send, receive, op);
  }
  collective::WorkPtr Barrier() override { return held_->Barrier(); }
  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return held_->AllocateReducible(bytes);
  }
  void Abort(absl::Status why) override { held_->Abort(std::move(why)); }
  absl::Status status() const override { return held_->status(); }
  void set_timeout(Duration timeout) override { held_->set_timeout(timeout); }

 private:
  const std::shared_ptr<collective::Communicator> held_;
};

}  // namespace muster::membership
