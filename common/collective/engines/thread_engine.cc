#include <fmt/format.h>

#include <memory>

#include "common/collective/engines/engine.h"
#include "common/collective/engines/thread_board.h"
#include "common/collective/group/formation.h"

namespace muster::collective {
namespace {

class ThreadEngine : public Engine {
 public:
  ThreadEngine(std::shared_ptr<ThreadBoard> board, int rank)
      : board_(std::move(board)), group_(ThreadGroupOptions(*board_, rank, {})) {}

  // Poisons the group, so no other rank waits for this one until the deadline.
  ~ThreadEngine() override {
    (void)board_->Keep(
        PeerLost(fmt::format("{} has left the group.", RankName({}, group_.rank()))));
    group_.Poison();
  }

  std::string Describe() const override {
    return fmt::format("plain memory, {} threads", group_.size());
  }

  absl::Status Run(const Operation& operation, MonotonicTime deadline) override {
    const Plan plan = MakePlan(operation, group_.rank(), group_.size(), group_.size());
    absl::Status status = RunPlan(operation.signature, plan, deadline);
    if (status.ok()) return status;
    // The reason is set before other ranks are woken, because they read it.
    status = board_->Keep(status);
    group_.Poison();
    group_.Quiesce();
    return status;
  }

  void Wake(const absl::Status& why) override {
    (void)board_->Keep(why);
    group_.Poison();
  }
  void Close(const absl::Status& why) override {
    (void)board_->Keep(why);
    group_.Poison();
    group_.Quiesce();
  }

 private:
  absl::Status RunPlan(const Signature& signature, const Plan& plan, MonotonicTime deadline) {
    if (SharedMemoryGroup::ContributionBytes(plan) <= kSmallBytes) {
      MUSTER_RETURN_IF_ERROR(group_.Begin(signature, -1, group_.Small(plan), deadline));
      group_.RunSmall(plan);
      return absl::OkStatus();
    }
    const auto where =
        reinterpret_cast<int64_t>(SharedMemoryGroup::DirectBase(plan, group_.rank()));
    MUSTER_RETURN_IF_ERROR(group_.Begin(signature, where, {}, deadline));
    return group_.RunDirect(plan, deadline);
  }

  const std::shared_ptr<ThreadBoard> board_;
  SharedMemoryGroup group_;
};

}  // namespace
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size, Duration timeout) {
  std::vector<std::unique_ptr<Communicator>> result;
  if (size == 1) {
    result.push_back(MakeCommunicator(MakeAloneEngine(), {}));
    return result;
  }
  auto board = std::make_shared<ThreadBoard>(size);
  for (int rank = 0; rank < size; ++rank) {
    result.push_back(MakeCommunicator(std::make_unique<ThreadEngine>(board, rank),
                                      {.rank = rank, .size = size, .timeout = timeout}));
  }
  return result;
}

}  // namespace muster::collective
