// The communicator's contract, run over every backend that needs no device: results against a plain
// reference, and what happens when ranks disagree, stay away or give up.
#include "tests/unit/collective/contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/collective/group_fixture.h"

namespace muster::collective {
namespace {

using testing::ContractCase;
using ::testing::HasSubstr;
using testing::MakeGroup;
using testing::OnEachRank;
using testing::TestGroup;

void RunWith(const ContractCase& one, const std::string& backend, int size) {
  SCOPED_TRACE(std::to_string(size) + " ranks");
  TestGroup group = MakeGroup(backend, size, {.timeout = one.timeout});
  // Replicas name the process.
  const bool replicas = backend.starts_with("replicas");
  testing::RunCaseOnThreads(
      one, group.ranks, [=](int rank) { return replicas ? "" : "rank " + std::to_string(rank); });
}

struct ContractRun {
  ContractCase one;
  std::string backend;
};
void PrintTo(const ContractRun& run, std::ostream* out) {
  *out << run.one.name << "_" << run.backend;
}

std::vector<ContractRun> OnEveryBackend(const std::vector<ContractCase>& cases) {
  std::vector<ContractRun> runs;
  for (const ContractCase& one : cases)
    for (const std::string& backend : testing::BackendNames()) runs.push_back({one, backend});
  return runs;
}

class Contract : public ::testing::TestWithParam<ContractRun> {};

INSTANTIATE_TEST_SUITE_P(Well, Contract,
                         ::testing::ValuesIn(OnEveryBackend(testing::ContractCases())),
                         ::testing::PrintToStringParamName());
// The other ranks of a group must not hang, and their error must name the cause.
INSTANTIATE_TEST_SUITE_P(Failing, Contract,
                         ::testing::ValuesIn(OnEveryBackend(testing::FailureCases())),
                         ::testing::PrintToStringParamName());

TEST_P(Contract, Holds) {
  const auto& [one, backend] = GetParam();
  if (one.ranks != 0) return RunWith(one, backend, one.ranks);
  for (int size = 1; size <= 5 && !HasFailure(); ++size) RunWith(one, backend, size);
}

// Seen from a process, what its replicas ask for may look like another process's operation.
TEST(Replicas, ProcessesWhoseReplicasAskForDifferentThingsAreNamed) {
  struct Case {
    std::function<WorkPtr(Communicator&, std::vector<double>&)> first, second;
    std::vector<std::string> says;
  };
  const auto all_reduce = [](ReduceOp op) {
    return [op](Communicator& c, std::vector<double>& data) {
      return c.AllReduce({data.data(), 4000, DataType::kFloat64}, op);
    };
  };
  const auto broadcast = [](int root) {
    return [root](Communicator& c, std::vector<double>& data) {
      return c.Broadcast({data.data(), 4000, DataType::kFloat64}, root);
    };
  };
  const auto scatter = [](Communicator& c, std::vector<double>& data) {
    return c.ReduceScatter({data.data(), 4000, DataType::kFloat64},
                           {data.data() + 4000, 1000, DataType::kFloat64}, ReduceOp::kSum);
  };
  for (const Case& with : std::vector<Case>{
           {all_reduce(ReduceOp::kSum), all_reduce(ReduceOp::kMean), {"all_reduce(mean)", "sum"}},
           {broadcast(0), broadcast(1), {"from replica 0", "from replica 1"}},
           {all_reduce(ReduceOp::kSum), scatter, {"all_reduce(float64", "reduce_scatter(sum)"}}}) {
    for (const char* backend : {"replicas", "replicas_tcp"}) {
      TestGroup group = MakeGroup(backend, 4);
      OnEachRank(4, [&](int rank) {
        std::vector<double> data(5000);
        const auto& issue = rank < 2 ? with.first : with.second;
        const absl::Status status = issue(group[rank], data)->Wait();
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
        for (const std::string& part : with.says)
          EXPECT_THAT(std::string(Message(status)), HasSubstr(part));
        EXPECT_THAT(std::string(Message(status)), HasSubstr("worker:0"));
        EXPECT_THAT(std::string(Message(status)), HasSubstr("worker:1"));
      });
    }
  }
}

}  // namespace
}  // namespace muster::collective
