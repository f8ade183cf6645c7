// Real processes, each with a listener, for tests that kill or stop processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/collective/group_fixture.h"

namespace muster::testing {

using Addresses = std::vector<std::string>;

// Forked children. Each runs `body` with its listener and the addresses of all listeners. The
// destructor kills children that still run.
class Processes {
 public:
  // Returns the child's exit code. `report` is a descriptor for a byte that wakes AwaitReport.
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
      auto listener = MakeListener();
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
  // Blocks until the child has written a byte to its `report`.
  void AwaitReport(int rank) {
    char byte;
    EXPECT_EQ(read(reports_[rank], &byte, 1), 1);
  }
  // Blocks until the child has written a byte to its `report` or has ended.
  void AwaitReportOrEnd(int rank) {
    char byte;
    EXPECT_GE(read(reports_[rank], &byte, 1), 0);
  }
  // Waits for the child's end. Returns its exit code, or 1000 plus the signal that ended it.
  int Join(int rank) {
    int status = 0;
    waitpid(std::exchange(pids_[rank], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> reports_;
};

}  // namespace muster::testing
