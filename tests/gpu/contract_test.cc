// The communicator's contract over NCCL and in device memory: the cases of tests/unit/collective,
// one group of processes for each.
#include "tests/unit/collective/contract.h"

#include <cuda_runtime_api.h>

#include "tests/gpu/nccl_ranks.h"

namespace muster::collective {
namespace {

using testing::Addresses;
using testing::ContractCase;
using testing::RankLayout;

class DeviceMemory final : public testing::BufferMemory {
 public:
  explicit DeviceMemory(int device) { Check(cudaSetDevice(device)); }
  std::shared_ptr<void> Allocate(int64_t bytes) override {
    void* data = nullptr;
    Check(cudaMalloc(&data, static_cast<size_t>(bytes)));
    return {data, [](void* memory) { (void)cudaFree(memory); }};
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault));
  }

 private:
  static void Check(cudaError_t error) {
    ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
  }
};

struct ContractRun {
  ContractCase one;
  RankLayout layout;
};
void PrintTo(const ContractRun& run, std::ostream* out) {
  *out << run.one.name << "_" << run.layout.name;
}
std::vector<ContractRun> Runs(const std::vector<ContractCase>& cases,
                              const std::vector<RankLayout>& layouts) {
  std::vector<ContractRun> runs;
  for (const ContractCase& one : cases)
    for (const RankLayout& layout : layouts) runs.push_back({one, layout});
  return runs;
}

class NcclContract : public testing::RanksTest,
                     public ::testing::WithParamInterface<ContractRun> {};

INSTANTIATE_TEST_SUITE_P(Well, NcclContract,
                         ::testing::ValuesIn(Runs(testing::ContractCases(),
                                                  {testing::kTwoOnCpu, testing::kOneRank,
                                                   testing::kTwoOnOne, testing::kTwoOnTwo})),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Failing, NcclContract,
                         ::testing::ValuesIn(Runs(testing::FailureCases(),
                                                  {testing::kTwoOnCpu, testing::kTwoOnOne,
                                                   testing::kTwoOnTwo})),
                         ::testing::PrintToStringParamName());

int RunRank(const ContractRun& run, int rank, transport::DataListener& listener,
            const Addresses& addresses, std::atomic<int>& count) {
  auto communicator = testing::Join(run.layout, rank, listener, addresses, run.one.timeout);
  if (!communicator.ok()) return testing::Fail(communicator.status());
  std::unique_ptr<testing::BufferMemory> device;
  if (run.layout.gpus > 0)
    device = std::make_unique<DeviceMemory>(testing::DeviceOf(run.layout, rank).index());
  testing::ContractRank mine{*communicator, device != nullptr ? *device : testing::HostBuffers(),
                             count, [](int other) { return "rank " + std::to_string(other); },
                             /*compares_beside=*/run.layout.gpus > 0};
  testing::RunCase(run.one, mine);
  return testing::CodeOfExpectations();
}

TEST_P(NcclContract, Holds) {
  const ContractRun& run = GetParam();
  testing::SharedCount count;
  testing::Processes processes(run.layout.ranks,
                               [&](int rank, auto& listener, const Addresses& addresses, int) {
                                 return RunRank(run, rank, listener, addresses, *count);
                               });
  ExpectAll(processes, run.layout);
}

}  // namespace
}  // namespace muster::collective
