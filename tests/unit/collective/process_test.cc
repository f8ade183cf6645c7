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

namespace muster {
namespace {

using Addresses = std::vector<std::string>;

// Forked children, each with a listener; all learn all addresses. Killed at the end whatever
// happened.
class Processes {
 public:
  using Body = std::function<int(int rank, transport::DataListener&, const Addresses&, int report)>;

  Processes(int count, const Body& body) {
    std::vector<std::array<int, 2>> up(count), down(count), report(count);
    for (int i = 0; i < count; ++i) {
      for (auto* p : {&up[i], &down[i], &report[i]}) EXPECT_EQ(pipe(p->data()), 0);
    }
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = fork();
      if (pid != 0) {
        pids_.push_back(pid);
        continue;
      }
      auto listener = testing::MakeListener();
      char mine[32] = "";
      std::strncpy(mine, listener->address().c_str(), sizeof mine - 1);
      Addresses all;
      bool ok = write(up[rank][1], mine, sizeof mine) == sizeof mine;
      for (int i = 0; ok && i < count; ++i) {
        char one[32];
        ok = read(down[rank][0], one, sizeof one) == sizeof one;
        all.emplace_back(one);
      }
      std::_Exit(ok ? body(rank, *listener, all, report[rank][1]) : 99);
    }
    for (int from = 0; from < count; ++from) {
      char one[32];
      EXPECT_EQ(read(up[from][0], one, sizeof one), ssize_t{sizeof one});
      for (int to = 0; to < count; ++to) {
        EXPECT_EQ(write(down[to][1], one, sizeof one), ssize_t{sizeof one});
      }
    }
    for (int i = 0; i < count; ++i) {
      for (auto* p : {&up[i], &down[i]}) close((*p)[0]), close((*p)[1]);
      close(report[i][1]);
      reports_.push_back(report[i][0]);
    }
  }
  ~Processes() {
    for (size_t i = 0; i < pids_.size(); ++i) {
      if (pids_[i] > 0) kill(pids_[i], SIGKILL), waitpid(pids_[i], nullptr, 0);
      close(reports_[i]);
    }
  }

  void Signal(int rank, int signal) { kill(pids_[rank], signal); }
  // Blocks until the child has written a byte to its report.
  void AwaitReport(int rank) {
    char byte;
    EXPECT_EQ(read(reports_[rank], &byte, 1), 1);
  }
  int Join(int rank) {
    int status = 0;
    waitpid(std::exchange(pids_[rank], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> reports_;
};

absl::StatusOr<std::unique_ptr<Communicator>> Form(transport::DataListener& listener,
                                                   const Addresses& addresses,
                                                   const std::vector<int>& tasks, int rank,
                                                   uint64_t generation, Backend backend,
                                                   Duration timeout) {
  GroupSpec spec;
  spec.generation = generation;
  spec.rank = rank;
  spec.ticket = "0123456789abcdef";
  spec.backend = backend;
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

TEST_P(ProcessTest, AKilledRankIsNamedAtOnceByTheOthers) {
  const Backend backend = GetParam();
  Processes processes(3, [=](int rank, auto& listener, const Addresses& addresses, int report) {
    auto group = Form(listener, addresses, {0, 1, 2}, rank, 1, backend, std::chrono::seconds(30));
    if (!group.ok()) return 10;
    absl::Status status;
    for (int i = 0;; ++i) {
      if (const int wrong = SumOnce(**group, 3, &status); wrong == 2) return 11;
      if (!status.ok()) break;
      if (i == 3) Report(report);
    }
    if (!absl::IsUnavailable(status)) return 12;
    if (Message(status).find("worker:1") != std::string_view::npos) return 0;
    std::fprintf(stderr, "rank %d: %s\n", rank, std::string(Message(status)).c_str());
    return 13;
  });
  for (const int rank : {0, 1, 2}) processes.AwaitReport(rank);
  const MonotonicTime killed = Clock::now();
  processes.Signal(1, SIGKILL);
  EXPECT_EQ(processes.Join(0), 0);
  EXPECT_EQ(processes.Join(2), 0);
  EXPECT_LT(Seconds(Clock::now() - killed), 5.0) << "not by the deadline of 30 s";
}

TEST_P(ProcessTest, AFrozenRankThatWakesAfterTheOthersHaveReformedHarmsNobody) {
  const Backend backend = GetParam();
  Processes processes(3, [=](int rank, auto& listener, const Addresses& addresses, int report) {
    if (rank < 2) {  // generation 1: tasks 0 and 1, until one of them hears no more
      auto group = Form(listener, addresses, {0, 1}, rank, 1, backend, std::chrono::seconds(1));
      if (!group.ok()) return 10;
      absl::Status status;
      for (int i = 0;; ++i) {
        if (const int wrong = SumOnce(**group, 2, &status); wrong == 2) return 11;
        if (!status.ok()) break;
        if (i == 3) Report(report);
      }
      if (rank == 1) return 0;  // the sleeper, awake again
      if (Message(status).find("worker:1") == std::string_view::npos) return 12;
    }
    // Generation 2: tasks 0 and 2. The sleeper is woken in the middle of it.
    auto group = Form(listener, addresses, {0, 2}, rank / 2, 2, backend, std::chrono::seconds(20));
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
}  // namespace muster
