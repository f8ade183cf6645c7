// Faults of a process's own device: what LibTorch throws for them, and a step that cannot be taken
// back because of one.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <new>

#include "common/base/faults/process_fault.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::TestProgram;

absl::Status Caught(const std::function<void()>& body) {
  return CatchProgramErrors("train_step", body);
}
[[noreturn]] void ThrowCuda(int error, const char* what) {
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, error, what);
}

TEST(TrainingFaults, OfADeviceEndTheProcessAndNotTheJob) {
  for (const int error : {214, 719, 999}) {
    const absl::Status status = Caught([&] { ThrowCuda(error, "CUDA error: gone"); });
    EXPECT_TRUE(IsProcessFault(status)) << error;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kRetryable);
    EXPECT_EQ(Message(status), "train_step failed: CUDA error: gone");
  }
  EXPECT_EQ(ExitCodeOf(Caught([] { ThrowCuda(35, "CUDA error: driver"); })),
            ExitCode::kConfiguration);
}

TEST(TrainingFaults, OfTheProgramOnADeviceAreTheProgramsStill) {
  EXPECT_EQ(ExitCodeOf(Caught([] { ThrowCuda(710, "CUDA error: device-side assert triggered"); })),
            ExitCode::kProgramFailed);
  EXPECT_EQ(ExitCodeOf(Caught([] {
              throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                                          "CUDA out of memory. Tried to allocate 2 GiB");
            })),
            ExitCode::kProgramFailed);
}

TEST(TrainingFaults, OfTheHostsMemoryAreTriedAgainByAnotherProcess) {
  const absl::Status status = Caught([] { throw std::bad_alloc(); });
  EXPECT_TRUE(IsProcessFault(status)) << status;
  EXPECT_EQ(ExitCodeOf(ClassifyFault(status, kUncertainFaults)), ExitCode::kProgramFailed);
}

// Every access of a device that has failed throws; here a buffer does, whose memory may no longer
// be written.
TEST(TrainingFaults, AStepThatCannotBeTakenBackSaysWhyItWasToBe) {
  testing::RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = 5;
  options.devices.emplace_back(at::kCPU);
  const auto run = testing::Run(options, [&](TestProgram& p) {
    p.on_build = [](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::ones({2}));
      self.model->buffer("seen", at::zeros({2}));
      builder.model("net", self.model);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
      builder.dataset(Split::kTrain, testing::Tensors2(at::ones({8, 2}), at::ones({8})));
    };
    p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"],
                    (at::matmul(batch[0], (*self.model)["w"]) - batch[1]).square());
      if (step.number() != 3 || step.replica() != 0) return;
      at::Tensor seen = (*self.model)["seen"];
      const c10::Storage memory = seen.storage();
      seen.set_data(at::zeros({2}));  // for what the test reads in the end
      memory.unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
      throw StatusError(PeerLost("worker 7 is gone"));
    };
  });
  EXPECT_TRUE(IsProcessFault(run.status)) << run.status;
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("worker 7 is gone"));
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("taking the step back failed"));
}

// Trains on `replicas`; the last of them has no memory in step `at`.
absl::Status RunOutOfMemory(int replicas, int64_t at, int restarts) {
  testing::RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = 5;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.restarts = restarts;
  return testing::Run(options,
                      [&](TestProgram& program) {
                        testing::LeastSquares(program, at::ones({8, 2}), at::ones({8}));
                        program.on_step = [&, replicas](TestProgram& self, Step& step,
                                                        const data::Batch& batch) {
                          if (step.number() == at && step.replica() == replicas - 1)
                            throw std::bad_alloc();
                          step.minimize(self.optimizers["sgd"], testing::SquaredError(self, batch));
                        };
                      })
      .status;
}

// A device that is lost before anything is done with it: what sets it for a replica's thread
// throws.
class LostDevice : public c10::impl::NoOpDeviceGuardImpl<at::kCPU> {
 public:
  c10::Device getDevice() const override {
    if (lost.exchange(false)) ThrowCuda(719, "CUDA error: device lost");
    return {at::kCPU, -1};
  }
  mutable std::atomic<bool> lost = false;
};

TEST(TrainingFaults, OfADeviceBeforeAReplicaBeginsAreOfItsProcess) {
  static const LostDevice* const device = new LostDevice;  // LibTorch forbids its destruction
  auto& registered = c10::impl::device_guard_impl_registry[static_cast<size_t>(at::kCPU)];
  const auto* const before = registered.exchange(device);
  testing::RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = 2;
  options.devices.assign(2, c10::Device(at::kCPU));
  options.on_generation = [](Generation&) { device->lost = true; };
  const auto run = testing::Run(options, [](TestProgram& p) {
    testing::LeastSquares(p, at::ones({8, 2}), at::ones({8}));
  });
  registered = before;
  EXPECT_TRUE(IsProcessFault(run.status)) << run.status;
  EXPECT_EQ(Message(run.status), "training failed: CUDA error: device lost");
}

// Replica 1 has made a step that replica 0 has not come through, and what it holds cannot be copied
// to replica 0.
TEST(TrainingFaults, AStateThatCannotBeCollectedEndsTheProcess) {
  testing::RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = 5;
  options.devices.assign(2, c10::Device(at::kCPU));
  std::latch both(2);
  const auto run = testing::Run(options, [&](TestProgram& p) {
    auto more = std::make_shared<testing::Tensors>();
    more->parameter("still", at::ones({2})).set_requires_grad(false);
    testing::LeastSquares(p, at::ones({8, 2}), at::ones({8}));
    const auto build = p.on_build;
    p.on_build = [=](TestProgram& self, Builder& builder) {
      build(self, builder);
      builder.model("more", more);
    };
    p.on_step = [&, more](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"], testing::SquaredError(self, batch));
      if (step.number() != 3) return;
      step.on_commit([&, more, replica = step.replica()] {
        both.arrive_and_wait();  // the last reduction is behind both
        if (replica != 0) return;
        (*more)["still"].storage().unsafeGetStorageImpl()->set_throw_on_mutable_data_ptr();
        throw StatusError(PeerLost("worker 7 is gone"));
      });
    };
  });
  EXPECT_TRUE(IsProcessFault(run.status)) << run.status;
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("collecting the newest state failed"));
}

// The other replicas hear of it as of a lost peer.
TEST(TrainingFaults, OfOneReplicaAreOfItsProcess) {
  for (int round = 0; round < 10; ++round) {
    const absl::Status status = RunOutOfMemory(3, 3, 0);
    EXPECT_TRUE(IsProcessFault(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("no memory left"));
  }
}

TEST(TrainingFaults, ThatMayBeOfTheProgramAreOfTheHostAfterAStep) {
  EXPECT_TRUE(IsProcessFault(RunOutOfMemory(1, 1, kUncertainFaults - 1)));
  EXPECT_EQ(ExitCodeOf(RunOutOfMemory(1, 1, kUncertainFaults)), ExitCode::kProgramFailed);
  EXPECT_TRUE(IsProcessFault(RunOutOfMemory(1, 3, kUncertainFaults)));
}

}  // namespace
}  // namespace muster
