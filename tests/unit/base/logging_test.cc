#include "common/base/logging.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/log_writer.h"

namespace muster {
namespace {

using std::chrono::minutes;

// stderr as a pipe; returns the end that is read.
int PipeAsStderr(bool full) {
  std::array<int, 2> ends;
  if (pipe(ends.data()) != 0) _exit(100);
  if (full) {
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], "x", 1) == 1) {
    }
    fcntl(ends[1], F_SETFL, 0);
  }
  dup2(ends[1], STDERR_FILENO);
  return ends[0];
}

// Until it has come, within a minute.
bool ReadUntil(int fd, const std::string& text, std::string* all) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  const MonotonicTime end = Clock::now() + minutes(1);
  std::array<char, 65536> bytes;
  while (all->find(text) == std::string::npos) {
    if (Clock::now() > end) return false;
    const ssize_t size = read(fd, bytes.data(), bytes.size());
    if (size > 0) {
      all->append(bytes.data(), static_cast<size_t>(size));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

// In a process of its own, whose stderr it is about.
void ExpectDone(void (*body)()) {
  // The log's thread is no part of a forked process.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        body();
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}
void Require(bool good, int code) {
  if (!good) _exit(code);
}

TEST(Logging, LinesComeWholeAndInOrder) {
  ExpectDone([] {
    const int end = PipeAsStderr(false);
    InitLogging("worker 1");
    for (int i = 0; i < 100; ++i) LogInfo("line {}", i);
    Require(FlushLog(), 1);
    std::string text;
    Require(ReadUntil(end, "line 99\n", &text), 2);
    size_t at = 0;
    for (int i = 0; i < 100; ++i) {
      at = text.find("I worker 1 | line " + std::to_string(i) + "\n", at);
      Require(at != std::string::npos, 3);
    }
    Require(text.find("missing") == std::string::npos, 4);
  });
}

TEST(Logging, AReaderThatDoesNotReadHoldsUpNobody) {
  ExpectDone([] {
    const int end = PipeAsStderr(true);
    InitLogging("worker 1");
    const MonotonicTime begin = Clock::now();
    for (int i = 0; i < 20000; ++i) LogInfo("line {}", i);
    Require(!FlushLog(), 1);
    Require(Clock::now() - begin < minutes(1), 2);
    // It comes back: the newest lines are there, and how many are not.
    std::string text;
    Require(ReadUntil(end, "line 19999\n", &text), 3);
    Require(text.find("lines are missing: nobody read them)\n") != std::string::npos, 4);
    Require(text.find("| line 10000\n") == std::string::npos, 5);
    Require(text.find("| line 19000\n") != std::string::npos, 6);
    Require(FlushLog(), 7);
  });
}

TEST(Logging, AFatalSignalsLineComesAfterTheLog) {
  ExpectDone([] {
    const int end = PipeAsStderr(false);
    InitLogging("");
    for (int i = 0; i < 100; ++i) LogInfo("line {}", i);
    FlushLogInHandler();
    (void)!write(STDERR_FILENO, "last\n", 5);
    std::string text;
    Require(ReadUntil(end, "last\n", &text), 1);
    Require(text.find("line 99\n") < text.find("last\n"), 2);
  });
}

TEST(Logging, TheHooksAreCalledAroundEachLine) {
  ExpectDone([] {
    const int end = PipeAsStderr(false);
    InitLogging("");
    SetLogHooks([] { (void)!write(STDERR_FILENO, "<", 1); },
                [] { (void)!write(STDERR_FILENO, ">", 1); });
    LogInfo("one");
    WriteByLog("as it is");
    Require(FlushLog(), 1);
    SetLogHooks(nullptr, nullptr);
    LogInfo("two");
    std::string text;
    Require(ReadUntil(end, "two\n", &text), 2);
    Require(text.starts_with("<"), 3);
    Require(text.find("one\n><as it is>") != std::string::npos, 4);
    Require(text.rfind('<') < text.find("as it is"), 5);
  });
}

}  // namespace
}  // namespace muster
