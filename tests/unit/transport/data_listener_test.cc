#include "common/transport/listener/data_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "tests/unit/base/becomes.h"
#include "tests/unit/transport/listeners.h"

namespace muster::transport {
namespace {

using ::testing::HasSubstr;

TEST(DataListenerTest, ConnectsAndMovesBytesBothWaysAtOnce) {
  const auto a = Listen(), b = Listen();
  const auto admission = a->Admit(5, 0, "ticket");
  const auto dialing = b->Dial(To(*a, {5, 1, 0, 0, "ticket"}));
  Result there = Await(*b, *dialing);
  ASSERT_TRUE(there.ok()) << there.status();
  const auto here = AwaitTake(*a, *admission, 1);
  ASSERT_NE(here, nullptr);
  EXPECT_EQ(here->info().from, 1);
  EXPECT_EQ(here->info().generation, 5u);
  const size_t bytes = 20'000'000;  // more than any buffer: it must flow both ways
  std::vector<std::byte> sent(bytes, std::byte{7}), received_a(bytes), received_b(bytes);
  const AbortSignal never;
  std::thread other(
      [&] { EXPECT_TRUE((*there)->Exchange(sent, received_b, Clock::now() + kLong, never).ok()); });
  EXPECT_TRUE(here->Exchange(sent, received_a, Clock::now() + kLong, never).ok());
  other.join();
  EXPECT_TRUE(received_a == sent && received_b == sent);
}

TEST(DataListenerTest, AnAbortEndsAWaitWithinMilliseconds) {
  const auto a = Listen(), b = Listen();
  const auto admission = a->Admit(1, 0, "ticket");
  const auto dialing = b->Dial(To(*a, {1, 1, 0, 0, "ticket"}));
  Result there = Await(*b, *dialing);
  ASSERT_TRUE(there.ok());
  std::byte byte;
  // The least of several: a machine that stalls makes one of them late, a wait that polls each.
  double least = Seconds(kLong);
  for (int i = 0; i < 10; ++i) {
    AbortSignal abort;
    MonotonicTime aborted;
    std::thread order([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      aborted = Clock::now();
      abort.Set();
    });
    const absl::Status status = (*there)->Exchange({}, {&byte, 1}, Clock::now() + kLong, abort);
    const MonotonicTime woken = Clock::now();
    order.join();
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    least = std::min(least, Seconds(woken - aborted));
  }
  EXPECT_LT(least, 0.2);
  const absl::Status late = (*there)->Exchange(
      {}, {&byte, 1}, Clock::now() + std::chrono::milliseconds(20), AbortSignal());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
}

TEST(DataListenerTest, EarlyConnectionsAreHeldUntilTheirGenerationIsFormed) {
  const auto a = Listen(), b = Listen();
  const auto early = b->Dial(To(*a, {9, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(*b, *early, std::chrono::milliseconds(50)).status()));
  const auto admission = a->Admit(9, 0, "ticket");
  EXPECT_TRUE(Await(*b, *early).ok());
  EXPECT_NE(AwaitTake(*a, *admission, 1), nullptr);
}

// Some of many simultaneous dials have their answer in the socket when they are given up.
TEST(DataListenerTest, DialsCanBeGivenUpWhileTheirAnswersCome) {
  const auto a = Listen();
  const auto admission = a->Admit(4, 0, "ticket");
  for (uint32_t round = 0; round < 10; ++round) {
    std::mutex busy;
    std::atomic<bool> reached = false;
    const auto b = *DataListener::Create(
        {.bind_address = "127.0.0.1", .wrap = [&](std::unique_ptr<ByteStream> stream) {
           reached = true;
           const std::lock_guard wait(busy);
           return stream;
         }});
    std::vector<std::unique_ptr<Dialing>> dialing;
    {
      const std::lock_guard keep(busy);
      for (uint32_t channel = 0; channel < 32; ++channel)
        dialing.push_back(b->Dial(To(*a, {4, 1, 0, 100 * round + channel, "ticket"})));
      EXPECT_TRUE(testing_support::Becomes([&] { return reached.load(); })) << "no connection";
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // answers come
      dialing.clear();
    }
    const auto last = b->Dial(To(*a, {4, 1, 0, 100 * round + 99, "ticket"}));
    EXPECT_TRUE(Await(*b, *last).ok());
    while (admission->TakeAny() != nullptr) {
    }
  }
}

TEST(DataListenerTest, AnyConnectionCanBeTaken) {
  const auto a = Listen(), b = Listen();
  const auto admission = a->Admit(4, kAnyone, "ticket");
  EXPECT_EQ(admission->TakeAny(), nullptr);
  // The same numbers twice: neither hides the other.
  std::vector<Result> near;
  for (const auto& [from, to, channel] :
       {std::tuple(7, 0, 3u), std::tuple(7, 0, 3u), std::tuple(2, 5, 0u)}) {
    const auto dialing = b->Dial(To(*a, {4, from, to, channel, "ticket"}));
    near.push_back(Await(*b, *dialing));
    ASSERT_TRUE(near.back().ok()) << near.back().status();
  }
  std::multiset<std::tuple<int, int, uint32_t>> came;
  while (const auto connection = admission->TakeAny()) {
    const ConnectionInfo& info = connection->info();
    came.insert({info.from, info.to, info.channel});
  }
  EXPECT_THAT(came, ::testing::ElementsAre(std::tuple(2, 5, 0u), std::tuple(7, 0, 3u),
                                           std::tuple(7, 0, 3u)));
  const auto wrong = b->Dial(To(*a, {4, 7, 0, 0, "other"}));
  EXPECT_THAT(std::string(Message(Await(*b, *wrong).status())), HasSubstr("ticket"));
}

TEST(DataListenerTest, PastGenerationsWrongTicketsAndWrongRanksAreRefused) {
  const auto a = Listen(), b = Listen();
  a->Admit(3, 0, "ticket").reset();
  const auto admission = a->Admit(7, 0, "ticket");
  const std::pair<Hello, const char*> cases[] = {{{2, 1, 0, 0, "ticket"}, "left this generation"},
                                                 {{3, 1, 0, 0, "ticket"}, "left this generation"},
                                                 {{7, 1, 0, 0, "tickeT"}, "another ticket"},
                                                 {{7, 1, 2, 0, "ticket"}, "does not expect"}};
  for (const auto& [hello, why] : cases) {
    const auto dialing = b->Dial(To(*a, hello));
    const absl::Status status = Await(*b, *dialing).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kRetryable);
    EXPECT_THAT(std::string(Message(status)), HasSubstr(why));
  }
  EXPECT_EQ(admission->Take(1, 0), nullptr);
}

TEST(DataListenerTest, GarbageOversizedAndSilentPeersAreClosedAndHarmNothing) {
  const auto a = Listen({.hello_timeout = std::chrono::seconds(1)});
  const auto admission = a->Admit(1, 0, "ticket");
  const int garbage = RawConnect(a->address()), oversized = RawConnect(a->address()),
            silent = RawConnect(a->address()), slow = RawConnect(a->address());
  const char request[] = "GET / HTTP/1.1\r\nHost: worker\r\n\r\n";
  EXPECT_GT(send(garbage, request, sizeof request, MSG_NOSIGNAL), 0);
  auto hello = EncodeHello({1, 1, 0, 0, "ticket"});
  EXPECT_EQ(send(slow, hello.data(), 20, MSG_NOSIGNAL), 20);  // and never the rest
  hello[15] = std::byte{0x7f};                                // a length of 2 GB
  EXPECT_GT(send(oversized, hello.data(), hello.size(), MSG_NOSIGNAL), 0);
  for (const int fd : {garbage, oversized, silent, slow}) {
    EXPECT_TRUE(IsClosed(fd, 20'000));
    close(fd);
  }
  const auto b = Listen();
  const auto dialing = b->Dial(To(*a, {1, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(Await(*b, *dialing).ok());
}

TEST(DataListenerTest, SilentPeersAreBoundedInNumberAndTheOldestGivesWay) {
  const auto a = Listen({.hello_timeout = kLong, .max_silent = 4});
  const auto admission = a->Admit(1, 0, "ticket");
  std::vector<int> silent;
  for (int i = 0; i < 6; ++i) silent.push_back(RawConnect(a->address()));
  EXPECT_TRUE(IsClosed(silent[0], 20'000));
  EXPECT_TRUE(IsClosed(silent[1], 20'000));
  EXPECT_FALSE(IsClosed(silent[5], 50));
  const auto b = Listen();
  const auto dialing = b->Dial(To(*a, {1, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(Await(*b, *dialing).ok()) << "those who know what to say are let in";
  for (const int fd : silent) close(fd);
}

TEST(DataListenerTest, HeldConnectionsAreBoundedInNumberAndTheOthersDialAgain) {
  const auto a = Listen({.max_held = 2}), b = Listen();
  std::vector<std::unique_ptr<Dialing>> early;
  for (int i = 0; i < 5; ++i) early.push_back(b->Dial(To(*a, {9, i + 1, 0, 0, "ticket"})));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // three find no room
  for (const auto& dialing : early) EXPECT_FALSE(dialing->TakeResult());
  const auto admission = a->Admit(9, 0, "ticket");
  for (const auto& dialing : early) EXPECT_TRUE(Await(*b, *dialing).ok());
}

TEST(DataListenerTest, OneThatFindsNoRoomSaysSoAtItsDeadline) {
  const auto a = Listen({.max_held = 0}), b = Listen();
  const auto dialing =
      b->Dial({a->address(), {9, 1, 0, 0, "ticket"}, Clock::now() + std::chrono::seconds(2)});
  const absl::Status status = Await(*b, *dialing).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("it holds too many connections"));
}

TEST(DataListenerTest, ManyMoreDialsThanRoomForTheSilentAllComeThrough) {
  const auto a = Listen({.max_silent = 4}), b = Listen();
  const auto admission = a->Admit(1, 0, "ticket");
  std::vector<std::unique_ptr<Dialing>> dials;
  for (int i = 0; i < 300; ++i) dials.push_back(b->Dial(To(*a, {1, i + 1, 0, 0, "ticket"})));
  for (const auto& dialing : dials) {
    const auto result = Await(*b, *dialing);
    EXPECT_TRUE(result.ok()) << result.status();
  }
}

TEST(DataListenerTest, DialingNobodySaysWhy) {
  const auto b = Listen();
  std::string gone;
  { gone = Listen()->address(); }
  const auto dialing = b->Dial({gone, {1, 1, 0, 0, "t"}, Clock::now() + kLong});
  const absl::Status status = Await(*b, *dialing).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("refused"));
}

TEST(DataListenerTest, AnAddressThatIsNotHereIsAConfigurationError) {
  const auto listener = DataListener::Create({.bind_address = "203.0.113.7"});
  EXPECT_EQ(ExitCodeOf(listener.status()), ExitCode::kConfiguration) << listener.status();
  EXPECT_THAT(std::string(Message(listener.status())), HasSubstr("203.0.113.7"));
}

}  // namespace
}  // namespace muster::transport
