// The state of a GPU, copied off it and put back: bit for bit what it is on the CPU.
#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include "common/train/host_memory.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/snapshot.h"
#include "tests/gpu/gpu_test.h"
#include "tests/unit/train/kept.h"
#include "tests/unit/train/odd_replica.h"

namespace muster {
namespace {

using testing::BitsOf;
using testing::OddReplica;
using testing::OddState;
using testing::TestProgram;

checkpoint::Snapshot Take(SnapshotTaker& taker, const Replica& replica, int64_t steps) {
  auto snapshot = taker.Take(replica, OddState(replica, steps));
  if (!snapshot.ok()) throw std::runtime_error(snapshot.status().ToString());
  return *std::move(snapshot);
}

// By name.
std::map<std::string, std::string> BitsOf(const checkpoint::Snapshot& snapshot) {
  std::map<std::string, std::string> all;
  for (const auto* set : {&snapshot.model, &snapshot.optimizer})
    for (const checkpoint::Tensor& t : set->tensors) all[t.name] = std::string(t.data, t.bytes());
  return all;
}

class Snapshots : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto devices = ParseDevices(GetParam());
    MUSTER_NEEDS_GPU(!devices.ok(), Message(devices.status()));
    device_ = devices->front();
  }
  c10::Device device_{at::kCPU};
};
INSTANTIATE_TEST_SUITE_P(Devices, Snapshots, ::testing::Values("cpu", "cuda:0"),
                         [](const auto& info) {
                           return std::string(info.param).starts_with("cuda") ? "Gpu" : "Cpu";
                         });

TEST_P(Snapshots, HoldTheBitsThatTheCpuHas) {
  const auto here = OddReplica(device_, 1), host = OddReplica(at::kCPU, 1);
  ASSERT_EQ(BitsOf(*here), BitsOf(*host));
  SnapshotTaker takes_here, takes_host;
  const auto snapshot = Take(takes_here, *here, 12), expected = Take(takes_host, *host, 12);
  ASSERT_EQ(snapshot.optimizer.tensors.size(), 7u * 4u) << "Adam's slots of each parameter";
  EXPECT_EQ(BitsOf(snapshot), BitsOf(expected));
  EXPECT_EQ(snapshot.state.step, 12);
}

// The copies are under way on the device's stream when the next step begins there.
TEST_P(Snapshots, AreNotChangedByWhatComesNext) {
  const auto replica = OddReplica(device_, 1);
  SnapshotTaker taker;
  const auto first = Take(taker, *replica, 12);
  const auto before = BitsOf(first);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : replica->state()) tensor.detach().zero_();
  EXPECT_EQ(BitsOf(first), before);
  // Nor by other snapshots, which may have their memory when the last is gone.
  std::map<std::string, std::string> zeros;
  {
    const auto second = Take(taker, *replica, 13);
    zeros = BitsOf(second);
    EXPECT_NE(zeros, before);
    EXPECT_EQ(BitsOf(first), before);
  }
  const auto third = Take(taker, *replica, 14);
  EXPECT_EQ(BitsOf(third), zeros);
  EXPECT_EQ(BitsOf(first), before);
}

TEST_P(Snapshots, AreRestoredOnAnyDevice) {
  for (const c10::Device from : {device_, c10::Device(at::kCPU)}) {
    for (const c10::Device to : {device_, c10::Device(at::kCPU)}) {
      const auto owner = OddReplica(from, 1), other = OddReplica(to, 2);
      ASSERT_NE(BitsOf(*other), BitsOf(*owner));
      const auto strides = [](const Replica& replica) {
        std::vector<std::vector<int64_t>> all;
        for (const at::Tensor& t : replica.state()) all.push_back(t.strides().vec());
        return all;
      };
      const auto layout = strides(*other);
      SnapshotTaker taker;
      LoopState state = OddState(*other, 0);
      const absl::Status restored =
          RestoreReplica(Take(taker, *owner, 12), testing::OddJob(), other.get(), &state);
      ASSERT_TRUE(restored.ok()) << restored;
      EXPECT_EQ(BitsOf(*other), BitsOf(*owner));
      EXPECT_EQ(strides(*other), layout);
      EXPECT_EQ(state.step, 12);
    }
  }
}

TEST_P(Snapshots, GoOnAsTheRunWouldHave) {
  testing::RunOptions options;
  options.devices = {device_};
  options.job.program = "test";
  options.job.global_batch_size = 7;
  options.job.epochs = 4;
  options.job.optimizer = {{"name", "adam"}};
  at::manual_seed(5);
  const at::Tensor x = at::randn({17, 2});
  const at::Tensor y = at::matmul(x, at::tensor({1.f, -2.f})) + 0.5f;
  const auto set_up = [&](TestProgram& p) { testing::LeastSquares(p, x, y); };
  testing::KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment& moment) { return moment.step == 5; };
  options.checkpoints = &kept;
  const auto whole = testing::Run(options, set_up);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_EQ(kept.kept.size(), 2u);
  testing::KeptCheckpoints later;
  options.checkpoints = &later;
  options.restore = kept.kept.data();
  const auto rest = testing::Run(options, set_up);
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  const std::vector<double> losses = whole.recorder.losses();
  EXPECT_EQ(rest.recorder.losses(), std::vector<double>(losses.begin() + 5, losses.end()));
  EXPECT_EQ(BitsOf(later.kept.back()), BitsOf(kept.kept.back()));
}

constexpr size_t kMega = size_t{1} << 20;

using LargeSnapshots = testing::GpuTest;

TEST_F(LargeSnapshots, LieInPinnedMemory) {
  constexpr int64_t kCount = 150 * kMega;  // 600 MiB
  auto replica = Replica::Make(
      testing::OddJob(),
      [] {
        auto program = std::make_unique<TestProgram>();
        program->on_build = [](TestProgram& self, Builder& builder) {
          self.model->parameter("large", at::zeros({kCount}));
          builder.model("net", self.model);
          builder.optimizer("sgd", {"net"}, "sgd", 0.1);
          builder.dataset(Split::kTrain, testing::Tensors2(at::ones({2, 1}), at::ones({2})));
        };
        return program;
      },
      device_);
  ASSERT_TRUE(replica.ok()) << replica.status();
  const at::Tensor values = at::arange(kCount, at::kInt).to(at::kFloat);
  (*replica)->state().at(0).detach().copy_(values);
  SnapshotTaker taker;
  const auto snapshot = Take(taker, **replica, 1);
  EXPECT_TRUE(at::equal(ViewOf(snapshot.model.tensors.at(0)), values));
  (*replica)->state().at(0).detach().zero_();
  LoopState state = OddState(**replica, 0);
  ASSERT_TRUE(RestoreReplica(snapshot, testing::OddJob(), replica->get(), &state).ok());
  EXPECT_TRUE(at::equal((*replica)->state().at(0).detach().cpu(), values));

  const auto memory = HostMemory::Make(1100 * kMega, /*pinned=*/true);
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(memory->registered()) << "this host lets CUDA pin no more";
}

}  // namespace
}  // namespace muster
