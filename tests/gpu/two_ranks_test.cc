// Two real NCCL ranks, processes of their own, on one GPU: NCCL tells GPUs apart by host and bus,
// and NCCL_HOSTID says that the hosts differ.
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/collective/nccl.h"
#include "common/collective/tensor.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/collective/processes.h"

namespace muster {
namespace {

using testing::Addresses;
using testing::Processes;

constexpr int kNoGpu = 77, kWrong = 1, kRight = 0;
constexpr Duration kTimeout = std::chrono::seconds(5);

using Made = absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>;

// In the child: CUDA must not have been touched before the fork.
Made Join(int rank, transport::DataListener& listener, const Addresses& addresses) {
  setenv("NCCL_HOSTID", rank == 0 ? "one" : "two", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_IB_DISABLE", "1", 1);
  if (at::cuda::device_count() == 0) std::_Exit(kNoGpu);
  GroupSpec spec;
  spec.generation = 1;
  spec.rank = rank;
  spec.ticket = "0123456789abcdef";
  spec.backend = Backend::kTcp;
  for (size_t i = 0; i < addresses.size(); ++i)
    spec.members.push_back({fmt::format("worker:{}", i), "host", addresses[i], 1});
  auto group = FormGroup(spec, listener, [] { return false; });
  if (!group.ok()) return group.status();
  return MakeNcclCommunicators(*std::move(group), {1, 1}, {.devices = {0}, .timeout = kTimeout},
                               [] { return false; });
}

void Say(int report) { EXPECT_EQ(write(report, "x", 1), 1); }

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return kWrong;
}

WorkPtr Reduce(Communicator& communicator, const at::Tensor& tensor) {
  return communicator.AllReduce(*TensorBuffer(tensor), ReduceOp::kSum);
}

class TwoRanks : public ::testing::Test {
 protected:
  // The exit code of `rank`; leaves the test where the host has no GPU.
  void Expect(Processes& processes, int rank) {
    const int code = processes.Join(rank);
    MUSTER_NEEDS_GPU(code == kNoGpu, "no CUDA device on this host");
    EXPECT_EQ(code, kRight) << "rank " << rank;
  }
};

TEST_F(TwoRanks, AddUpWhatBothHave) {
  Processes processes(2, [](int rank, auto& listener, const Addresses& all, int) {
    Made made = Join(rank, listener, all);
    if (!made.ok()) return Fail(made.status());
    for (int i = 1; i <= 100; ++i) {
      const at::Tensor value = at::full({i * 1000}, rank + i, at::kCUDA);
      if (const auto status = Reduce(*(*made)[0], value)->Wait(); !status.ok()) return Fail(status);
      if (!at::equal(value.cpu(), at::full({i * 1000}, 2 * i + 1, at::kFloat))) return kWrong;
    }
    return kRight;
  });
  Expect(processes, 0);
  if (!IsSkipped()) Expect(processes, 1);
}

// Rank 0 finds out within a few deadlines.
int ReduceWhileTheOtherIsLost(int rank, transport::DataListener& listener, const Addresses& all,
                              int report) {
  Made made = Join(rank, listener, all);
  if (!made.ok()) return Fail(made.status());
  const at::Tensor value = at::ones({1 << 20}, at::kCUDA);
  if (const auto status = Reduce(*(*made)[0], value)->Wait(); !status.ok()) return Fail(status);
  if (rank == 1) {
    Say(report);
    std::this_thread::sleep_for(std::chrono::minutes(5));
  }
  const MonotonicTime start = Clock::now();
  const absl::Status status = Reduce(*(*made)[0], value)->Wait();
  if (ExitCodeOf(status) != ExitCode::kRetryable) return Fail(status);
  return Clock::now() - start < 3 * kTimeout ? kRight : kWrong;
}

TEST_F(TwoRanks, AKilledPeerIsFound) {
  Processes processes(2, ReduceWhileTheOtherIsLost);
  processes.AwaitReportOrEnd(1);
  processes.Signal(1, SIGKILL);
  Expect(processes, 0);
}

TEST_F(TwoRanks, AFrozenPeerIsFound) {
  Processes processes(2, ReduceWhileTheOtherIsLost);
  processes.AwaitReportOrEnd(1);
  processes.Signal(1, SIGSTOP);
  Expect(processes, 0);
}

TEST_F(TwoRanks, AWaitForAPeerThatNeverComesEndsWithAnAbort) {
  Processes processes(2, [](int rank, auto& listener, const Addresses& all, int report) {
    Made made = Join(rank, listener, all);
    if (!made.ok()) return Fail(made.status());
    if (rank == 1) {
      Say(report);
      std::this_thread::sleep_for(std::chrono::minutes(5));
    }
    (*made)[0]->set_timeout(std::chrono::minutes(5));
    const at::Tensor value = at::ones({1 << 20}, at::kCUDA);
    const WorkPtr work = Reduce(*(*made)[0], value);
    std::thread order([&] { (*made)[0]->Abort(PeerLost("worker 1 was lost")); });
    const absl::Status status = work->Wait();
    order.join();
    return status.ok() ? kWrong : kRight;
  });
  processes.AwaitReportOrEnd(1);
  Expect(processes, 0);
}

}  // namespace
}  // namespace muster
