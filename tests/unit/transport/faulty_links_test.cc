#include "common/transport/faulty_links.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "common/transport/data_connection.h"

namespace muster::transport {
namespace {

constexpr Duration kLinkLimit = std::chrono::minutes(1);

// Two ends of a connection, the first one's process with faults.
class FaultyLinksTest : public ::testing::Test {
 protected:
  FaultyLinksTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    near_ = std::make_unique<DataConnection>(links_.Wrap(MakeTcpStream(fds[0])), ConnectionInfo{});
    far_ = std::make_unique<DataConnection>(MakeTcpStream(fds[1]), ConnectionInfo{});
  }
  static absl::Status Send(DataConnection& connection, const std::string& text, Duration limit) {
    return connection.Exchange(std::as_bytes(std::span(text)), {}, Clock::now() + limit, never_);
  }
  static absl::StatusOr<std::string> Receive(DataConnection& connection, size_t size,
                                             Duration limit) {
    std::string text(size, '\0');
    MUSTER_RETURN_IF_ERROR(connection.Exchange({}, std::as_writable_bytes(std::span(text)),
                                               Clock::now() + limit, never_));
    return text;
  }

  inline static AbortSignal never_;
  FaultyLinks links_;
  std::unique_ptr<DataConnection> near_, far_;
};

TEST_F(FaultyLinksTest, PassEverythingWithoutAFault) {
  EXPECT_TRUE(Send(*near_, "there", kLinkLimit).ok());
  EXPECT_EQ(*Receive(*far_, 5, kLinkLimit), "there");
  EXPECT_TRUE(Send(*far_, "back", kLinkLimit).ok());
  EXPECT_EQ(*Receive(*near_, 4, kLinkLimit), "back");
}

TEST_F(FaultyLinksTest, CutIsNoticedOnBothSidesAlsoByWhoWaits) {
  std::thread waiter(
      [&] { EXPECT_TRUE(absl::IsUnavailable(Receive(*near_, 1, kLinkLimit).status())); });
  std::thread far(
      [&] { EXPECT_TRUE(absl::IsUnavailable(Receive(*far_, 1, kLinkLimit).status())); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  links_.Cut();
  waiter.join();
  far.join();
}

TEST_F(FaultyLinksTest, FrozenNothingPassesAndThawedAllOfIt) {
  const Duration time = std::chrono::milliseconds(200), moment = std::chrono::milliseconds(20);
  ASSERT_TRUE(Send(*far_, "early", kLinkLimit).ok());
  ASSERT_TRUE(Send(*near_, "first", kLinkLimit).ok());  // as an answer to a hello
  EXPECT_EQ(*Receive(*far_, 5, kLinkLimit), "first");
  links_.Freeze(std::chrono::hours(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Receive(*near_, 5, moment).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Send(*near_, "there", moment)));
  const MonotonicTime start = Clock::now();
  links_.Freeze(time);
  // The end of the freeze wakes a waiting reader.
  EXPECT_EQ(*Receive(*near_, 5, kLinkLimit), "early");
  EXPECT_GE(Clock::now() - start, time);
  EXPECT_TRUE(Send(*near_, "there", kLinkLimit).ok());
  EXPECT_EQ(*Receive(*far_, 5, kLinkLimit), "there");
}

TEST_F(FaultyLinksTest, FrozenInTheMiddleOfAWait) {
  const MonotonicTime start = Clock::now();
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    links_.Freeze(std::chrono::milliseconds(200));
    EXPECT_TRUE(Send(*far_, "late", kLinkLimit).ok());
  });
  EXPECT_EQ(*Receive(*near_, 4, kLinkLimit), "late");
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200));
  sender.join();
}

TEST_F(FaultyLinksTest, StreamsMayOutliveTheLinks) {
  auto links = std::make_unique<FaultyLinks>();
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  auto stream = links->Wrap(MakeTcpStream(fds[0]));
  const auto other = MakeTcpStream(fds[1]);
  links.reset();
  stream.reset();
  char byte;
  const iovec into{&byte, 1};
  EXPECT_FALSE(other->Read({&into, 1}).ok());
}

}  // namespace
}  // namespace muster::transport
