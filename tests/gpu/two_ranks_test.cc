// Two real NCCL ranks, of which one is lost.
#include <ATen/Functions.h>

#include <thread>

#include "common/collective/tensor.h"
#include "tests/gpu/nccl_ranks.h"

namespace muster {
namespace {

using testing::Addresses;
using testing::Fail;
using testing::kRight;
using testing::kWrong;
using testing::Processes;
using testing::RankLayout;

constexpr Duration kTimeout = std::chrono::seconds(5);

void Say(int report) { EXPECT_EQ(write(report, "x", 1), 1); }

collective::WorkPtr Reduce(collective::Communicator& communicator, const at::Tensor& tensor) {
  return communicator.AllReduce(*collective::TensorBuffer(tensor), ReduceOp::kSum);
}

class TwoRanks : public testing::RanksTest, public ::testing::WithParamInterface<RankLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, TwoRanks,
                         ::testing::Values(testing::kTwoOnCpu, testing::kTwoOnOne,
                                           testing::kTwoOnTwo),
                         ::testing::PrintToStringParamName());

TEST_P(TwoRanks, AddUpWhatBothHave) {
  const RankLayout& layout = GetParam();
  Processes processes(2, [&](int rank, auto& listener, const Addresses& all, int) {
    auto made = testing::Join(layout, rank, listener, all, kTimeout);
    if (!made.ok()) return Fail(made.status());
    const auto options = at::TensorOptions().dtype(at::kFloat);
    for (int i = 1; i <= 100; ++i) {
      const at::Tensor value =
          at::full({i * 1000}, rank + i, options.device(testing::DeviceOf(layout, rank)));
      if (const auto status = Reduce(**made, value)->Wait(); !status.ok()) return Fail(status);
      if (!at::equal(value.cpu(), at::full({i * 1000}, 2 * i + 1, options))) return kWrong;
    }
    return kRight;
  });
  ExpectAll(processes, layout);
}

// Rank 0 finds out within a few deadlines.
Processes::Body ReduceWhileTheOtherIsLost(const RankLayout& layout) {
  return [layout](int rank, transport::DataListener& listener, const Addresses& all, int report) {
    auto made = testing::Join(layout, rank, listener, all, kTimeout);
    if (!made.ok()) return Fail(made.status());
    const at::Tensor value = at::ones({1 << 20}, testing::DeviceOf(layout, rank));
    if (const auto status = Reduce(**made, value)->Wait(); !status.ok()) return Fail(status);
    if (rank == 1) {
      Say(report);
      std::this_thread::sleep_for(std::chrono::minutes(5));
    }
    const MonotonicTime start = Clock::now();
    const absl::Status status = Reduce(**made, value)->Wait();
    if (ExitCodeOf(status) != ExitCode::kRetryable) return Fail(status);
    return Clock::now() - start < 3 * kTimeout ? kRight : kWrong;
  };
}

TEST_P(TwoRanks, AKilledPeerIsFound) {
  Processes processes(2, ReduceWhileTheOtherIsLost(GetParam()));
  processes.AwaitReportOrEnd(1);
  processes.Signal(1, SIGKILL);
  Expect(processes, GetParam(), 0);
}

TEST_P(TwoRanks, AFrozenPeerIsFound) {
  Processes processes(2, ReduceWhileTheOtherIsLost(GetParam()));
  processes.AwaitReportOrEnd(1);
  processes.Signal(1, SIGSTOP);
  Expect(processes, GetParam(), 0);
}

TEST_P(TwoRanks, AWaitForAPeerThatNeverComesEndsWithAnAbort) {
  const RankLayout& layout = GetParam();
  Processes processes(2, [&](int rank, auto& listener, const Addresses& all, int report) {
    auto made = testing::Join(layout, rank, listener, all, kTimeout);
    if (!made.ok()) return Fail(made.status());
    if (rank == 1) {
      Say(report);
      std::this_thread::sleep_for(std::chrono::minutes(5));
    }
    (*made)->set_timeout(std::chrono::minutes(5));
    const at::Tensor value = at::ones({1 << 20}, testing::DeviceOf(layout, rank));
    const collective::WorkPtr work = Reduce(**made, value);
    std::thread order([&] { (*made)->Abort(PeerLost("worker 1 was lost")); });
    const absl::Status status = work->Wait();
    order.join();
    return status.ok() ? kWrong : kRight;
  });
  processes.AwaitReportOrEnd(1);
  Expect(processes, GetParam(), 0);
}

}  // namespace
}  // namespace muster
