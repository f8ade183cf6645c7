// A worker that starts when its chief may have ended already.
#include "common/membership/late_start.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using membership::AwaitChief;
using membership::LateStart;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

LateStart StartAt(const std::string& address) {
  LateStart start;
  start.chief_task = "chief:0";
  start.chief_address = address;
  start.patience = milliseconds(700);
  start.look = milliseconds(200);
  return start;
}

TEST(LateStart, JoinsWhereSomethingListensOrNothingIsKnown) {
  FakePort port;
  EXPECT_EQ(*AwaitChief(StartAt(port.address())), "");
  // Names in a cluster may appear late, and hosts may be booting: these are the session's to try.
  EXPECT_EQ(*AwaitChief(StartAt("no-such-host.invalid:2222")), "");
}

TEST(LateStart, ARefusalIsTriedForAWhile) {
  const std::string nobody = fmt::format("127.0.0.1:{}", FreePort());
  const MonotonicTime begun = Clock::now();
  const auto late = AwaitChief(StartAt(nobody));
  EXPECT_GE(Clock::now() - begun, milliseconds(700));
  EXPECT_EQ(ExitCodeOf(late.status()), ExitCode::kRetryable);
  EXPECT_EQ(
      std::string(Message(late.status())),
      fmt::format("could not reach the chief chief:0 ({}) for 0.7 s: connection refused", nobody));
}

TEST(LateStart, TheResultOfAFinishedRunIsAnEnd) {
  LateStart start = StartAt(fmt::format("127.0.0.1:{}", FreePort()));
  start.patience = start.join = std::chrono::hours(1);
  int asked = 0;
  start.finished = [&asked] {
    ++asked;
    return "trained to its end";
  };
  EXPECT_EQ(*AwaitChief(start), "trained to its end");
  EXPECT_EQ(asked, 1);
}

TEST(LateStart, ARunThatIsNotFinishedIsWaitedForAndReadOnce) {
  LateStart start = StartAt(fmt::format("127.0.0.1:{}", FreePort()));
  int asked = 0;
  start.finished = [&asked] {
    ++asked;
    return "";
  };
  EXPECT_EQ(ExitCodeOf(AwaitChief(start).status()), ExitCode::kRetryable);
  EXPECT_EQ(asked, 1);
}

TEST(LateStart, AnOwnerOfTheFolderIsAwaitedForAsLongAsAChief) {
  LateStart start = StartAt(fmt::format("127.0.0.1:{}", FreePort()));
  start.join = milliseconds(1500);
  int64_t written = 0;
  start.owner = [&written] { return ++written; };  // it lives
  const auto late = AwaitChief(start);
  EXPECT_THAT(std::string(Message(late.status())), HasSubstr("for 1.5 s (timeouts.join): "));
  start.owner = [&written] { return written; };  // it does not
  EXPECT_THAT(std::string(Message(AwaitChief(start).status())), HasSubstr("for 0.7 s: "));
}

TEST(LateStart, AStopEndsTheWait) {
  LateStart start = StartAt(fmt::format("127.0.0.1:{}", FreePort()));
  start.patience = start.join = std::chrono::hours(1);
  start.give_up = [] { return true; };
  EXPECT_EQ(ExitCodeOf(AwaitChief(start).status()), ExitCode::kPreempted);
}

}  // namespace
}  // namespace muster::chief::testing
