// The communicator's contract over the NCCL backend and the double, which carries its operations
// out in host memory: what is asked of real GPUs in tests/gpu/contract_test.cc.
#include <gtest/gtest.h>

#include <thread>

#include "common/collective/group/formation.h"
#include "common/collective/nccl/nccl.h"
#include "tests/unit/collective/contract.h"
#include "tests/unit/nccl/nccl_double.h"

extern "C" void MusterMakeNcclCommunicators(muster::collective::NcclRequest* request);

namespace muster::collective {
namespace {

using testing::ContractCase;

// One replica in each of `size` processes, which are threads here, or all of them in one.
std::vector<std::unique_ptr<Communicator>> MakeGroup(int size, bool one_process, Duration timeout) {
  nccl_double::Reset("");
  const int processes = one_process ? 1 : size;
  const std::vector<int> per_rank(processes, size / processes);
  auto groups = MakeThreadCommunicators(processes, timeout);
  std::vector<std::unique_ptr<Communicator>> ranks(size);
  std::vector<std::thread> threads;
  for (int process = 0; process < processes; ++process) {
    threads.emplace_back([&, process] {
      NcclOptions options{.timeout = timeout};
      for (int i = 0; i < per_rank[process]; ++i) options.devices.push_back(process + i);
      const std::function<bool()> aborted;
      NcclRequest request{std::move(groups[process]), per_rank, options, aborted,
                          absl::UnknownError("")};
      MusterMakeNcclCommunicators(&request);
      ASSERT_TRUE(request.result.ok()) << request.result.status();
      for (auto& communicator : *request.result) {
        const int rank = communicator->rank();
        ranks[rank] = std::move(communicator);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

struct ContractRun {
  ContractCase one;
  bool one_process;
};
void PrintTo(const ContractRun& run, std::ostream* out) {
  *out << run.one.name << (run.one_process ? "_OneProcess" : "_Processes");
}
std::vector<ContractRun> Runs(const std::vector<ContractCase>& cases) {
  std::vector<ContractRun> runs;
  for (const ContractCase& one : cases)
    for (const bool one_process : {false, true}) runs.push_back({one, one_process});
  return runs;
}

class NcclDoubleContract : public ::testing::TestWithParam<ContractRun> {
 protected:
  void RunWith(int size) {
    const auto& [one, one_process] = GetParam();
    SCOPED_TRACE(std::to_string(size) + " ranks");
    auto ranks = MakeGroup(size, one_process, one.timeout);
    if (HasFatalFailure()) return;
    testing::RunCaseOnThreads(
        one, ranks,
        [one_process = one_process](int rank) {
          return (one_process ? "replica " : "rank ") + std::to_string(rank);
        },
        /*compares_beside=*/true);
    ranks.clear();
    EXPECT_EQ(nccl_double::Leaks(), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Well, NcclDoubleContract,
                         ::testing::ValuesIn(Runs(testing::ContractCases())),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Failing, NcclDoubleContract,
                         ::testing::ValuesIn(Runs(testing::FailureCases())),
                         ::testing::PrintToStringParamName());

TEST_P(NcclDoubleContract, Holds) {
  if (GetParam().one.ranks != 0) return RunWith(GetParam().one.ranks);
  for (int size = 1; size <= 5 && !HasFailure(); ++size) RunWith(size);
}

}  // namespace
}  // namespace muster::collective
