// NCCL at world size 1. What needs a GPU is skipped, with the reason, where there is none; that the
// module loads and refuses devices that are not there is tested everywhere.
#include "common/collective/nccl/nccl.h"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Sleep.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/collective/group/formation.h"
#include "common/collective/tensor.h"
#include "tests/gpu/gpu.h"

namespace muster::collective {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Communicator>> MakeOne(int device) {
  auto group = std::move(MakeThreadCommunicators(1, std::chrono::seconds(20))[0]);
  auto made = MakeNcclCommunicators(std::move(group), {1}, {.devices = {device}}, nullptr);
  if (!made.ok()) return made.status();
  return std::move((*made)[0]);
}

TEST(Nccl, ADeviceThatIsNotThereIsAConfigurationError) {
  const auto made = MakeOne(9999);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(ExitCodeOf(made.status()), ExitCode::kConfiguration) << made.status();
  EXPECT_THAT(std::string(Message(made.status())), HasSubstr("no device cuda:9999"));
}

class NcclOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    MUSTER_NEEDS_GPU(at::cuda::device_count() == 0, "no CUDA device on this host");
    auto made = MakeOne(0);
    ASSERT_TRUE(made.ok()) << made.status();
    communicator_ = *std::move(made);
  }
  std::unique_ptr<Communicator> communicator_;
};

TEST_F(NcclOnGpu, EveryVerbOnOneRankLeavesTheValues) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    const at::Tensor host = at::arange(1000).to(type);
    const at::Tensor device = host.to(at::kCUDA), other = at::zeros_like(device);
    const Buffer buffer = *TensorBuffer(device), out = *TensorBuffer(other);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
      EXPECT_TRUE(communicator_->AllReduce(buffer, op)->Wait().ok());
      EXPECT_TRUE(communicator_->ReduceScatter(buffer, out, op)->Wait().ok());
      EXPECT_TRUE(at::equal(other.cpu(), host));
    }
    EXPECT_TRUE(communicator_->Broadcast(buffer, 0)->Wait().ok());
    EXPECT_TRUE(communicator_->AllGather(buffer, out)->Wait().ok());
    EXPECT_TRUE(communicator_->Barrier()->Wait().ok());
    EXPECT_TRUE(at::equal(device.cpu(), host));
  }
}

TEST_F(NcclOnGpu, AnAbortDuringAReductionIsNeverOk) {
  const at::Tensor gradient = at::ones({1 << 20}, at::TensorOptions(at::kCUDA));
  const at::Tensor parameters = at::ones({1 << 20}, at::TensorOptions(at::kCUDA));
  at::cuda::sleep(2'000'000'000);  // the reduction stays behind this for about a second
  const WorkPtr work = communicator_->AllReduce(*TensorBuffer(gradient), ReduceOp::kSum);
  std::thread order([&] { communicator_->Abort(PeerLost("worker 7 was lost")); });
  const absl::Status status = work->Wait();
  order.join();
  EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 7 was lost"));
  if (status.ok()) parameters.add_(gradient);  // what a step does
  EXPECT_TRUE(at::equal(parameters.cpu(), at::ones({1 << 20})));
  EXPECT_FALSE(communicator_->Barrier()->Wait().ok()) << "poisoned for good";
}

}  // namespace
}  // namespace muster::collective
