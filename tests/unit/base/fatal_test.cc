#include "common/base/process/fatal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <stdexcept>
#include <thread>

#include "common/base/logging.h"

namespace muster {
namespace {

TEST(FatalDeathTest, AFatalSignalIsNamedAndTakesItsCourse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);  // Removes a sanitizer's handler.
        NameFatalSignals("worker 1");
        raise(SIGSEGV);
      },
      ::testing::KilledBySignal(SIGSEGV), "worker 1 \\(pid [0-9]+\\): killed by SIGSEGV");
  EXPECT_EXIT(
      {
        NameFatalSignals("worker 1");
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "worker 1 .*killed by SIGABRT");
}

TEST(FatalDeathTest, AnUncaughtExceptionIsReportedAndEndsTheProcessWith1) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        OnUncaught([](const std::string& why) { fprintf(stderr, "reported: %s\n", why.c_str()); },
                   std::chrono::minutes(1));
        std::thread([] { throw std::runtime_error("bad luck"); }).join();
      },
      ::testing::ExitedWithCode(1),
      "reported: an exception was not caught on a thread of the program: bad luck");
}

TEST(FatalDeathTest, NobodyWaitsLongForTheTelling) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const MonotonicTime start = Clock::now();
  EXPECT_EXIT(
      {
        InitLogging("");  // to stderr
        OnUncaught([](const std::string&) { std::this_thread::sleep_for(std::chrono::hours(1)); },
                   std::chrono::milliseconds(100));
        std::thread([] { throw 7; }).join();
      },
      ::testing::ExitedWithCode(1), "ROOT CAUSE: an exception that is no std::exception");
  EXPECT_LT(Seconds(Clock::now() - start), 30);
}

}  // namespace
}  // namespace muster
