// Real processes that are killed and frozen in the middle of collective operations.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/unit/collective/group_fixture.h"
#include "tests/unit/collective/processes.h"

namespace muster::collective {
namespace {

using testing::Addresses;
using testing::Processes;

absl::StatusOr<std::unique_ptr<Communicator>> Form(transport::DataListener& listener,
                                                   const Addresses& addresses,
                                                   const std::vector<int>& tasks, int rank,
                                                   uint64_t generation, Backend backend,
                                                   Duration timeout) {
  GroupSpec spec;
  spec.generation = generation;
  spec.rank = rank;
  spec.ticket = testing::kTicket;
  spec.backend = backend;
  spec.formation_timeout = std::chrono::minutes(1);
  spec.operation_timeout = timeout;
  for (const int task : tasks) {
    spec.members.push_back({fmt::format("worker:{}", task), "host", addresses[task], 1});
  }
  return FormGroup(spec, listener, nullptr);
}

// 0 when the sum over `ranks` is right, 2 when it is not, 1 with the error in `status`.
int SumOnce(Communicator& communicator, float ranks, absl::Status* status) {
  std::vector<float> data(300'000, 1.f);
  *status =
      communicator.AllReduce({data.data(), 300'000, DataType::kFloat32}, ReduceOp::kSum)->Wait();
  if (!status->ok()) return 1;
  for (const float x : data) {
    if (x != ranks) return 2;
  }
  return 0;
}

void Report(int fd) {
  const char byte = 1;
  if (write(fd, &byte, 1) != 1) std::_Exit(98);
}

class ProcessTest : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(All, ProcessTest, ::testing::Values(Backend::kTcp, Backend::kSharedMemory),
                         [](const auto& info) {
                           return info.param == Backend::kTcp ? "tcp" : "shared_memory";
                         });

// Four of the seven ranks are not linked with the killed one.
TEST_P(ProcessTest, AKilledRankIsNamedAtOnceByTheOthers) {
  constexpr int kCount = 7, kKilled = 1;
  const Backend backend = GetParam();
  Processes processes(
      kCount, [=](int rank, auto& listener, const Addresses& addresses, int report) {
        auto group = Form(listener, addresses, {0, 1, 2, 3, 4, 5, 6}, rank, 1, backend,
                          std::chrono::minutes(2));
        if (!group.ok()) return 10;
        absl::Status status;
        for (int i = 0;; ++i) {
          if (const int wrong = SumOnce(**group, kCount, &status); wrong == 2) return 11;
          if (!status.ok()) break;
          if (i == 3) Report(report);
        }
        if (!absl::IsUnavailable(status)) return 12;
        const std::string_view message = Message(status);
        bool right = message.find("worker:1") != std::string_view::npos;
        for (const char* other : {"worker:0", "worker:2", "worker:3", "worker:4", "worker:5"}) {
          right &= message.find(other) == std::string_view::npos;
        }
        if (right) return 0;
        std::fprintf(stderr, "rank %d: %s\n", rank, std::string(message).c_str());
        return 13;
      });
  for (int rank = 0; rank < kCount; ++rank) processes.AwaitReport(rank);
  const MonotonicTime killed = Clock::now();
  processes.Signal(kKilled, SIGKILL);
  for (int rank = 0; rank < kCount; ++rank) {
    if (rank == kKilled) continue;
    EXPECT_EQ(processes.Join(rank), 0) << "rank " << rank;
  }
  EXPECT_LT(Clock::now() - killed, std::chrono::minutes(1)) << "not by the deadline of 2 min";
}

TEST_P(ProcessTest, AFrozenRankThatWakesAfterTheOthersHaveReformedHarmsNobody) {
  const Backend backend = GetParam();
  Processes processes(3, [=](int rank, auto& listener, const Addresses& addresses, int report) {
    if (rank < 2) {  // generation 1: tasks 0 and 1, until one of them hears no more
      auto group = Form(listener, addresses, {0, 1}, rank, 1, backend, std::chrono::minutes(1));
      if (!group.ok()) return 10;
      absl::Status status;
      for (int i = 0;; ++i) {
        if (const int wrong = SumOnce(**group, 2, &status); wrong == 2) return 11;
        if (!status.ok()) break;
        if (i != 3) continue;
        (*group)->set_timeout(std::chrono::seconds(3));  // for the one that will be stopped
        Report(report);
      }
      if (rank == 1) return 0;  // the sleeper, awake again
      if (Message(status).find("worker:1") == std::string_view::npos) return 12;
    }
    // Generation 2: tasks 0 and 2. The sleeper is woken in the middle of it.
    auto group = Form(listener, addresses, {0, 2}, rank / 2, 2, backend, std::chrono::minutes(1));
    if (!group.ok()) return 13;
    absl::Status status;
    for (int i = 0; i < 200; ++i) {
      if (const int wrong = SumOnce(**group, 2, &status)) return 20 + wrong;
      if (i == 20) Report(report);
    }
    return 0;
  });
  processes.AwaitReport(0);
  processes.AwaitReport(1);
  processes.Signal(1, SIGSTOP);
  processes.AwaitReport(2);  // generation 2 is under way
  processes.Signal(1, SIGCONT);
  EXPECT_EQ(processes.Join(0), 0);
  EXPECT_EQ(processes.Join(2), 0);
  EXPECT_EQ(processes.Join(1), 0);
}

}  // namespace
}  // namespace muster::collective
