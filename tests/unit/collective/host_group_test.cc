// A host's ranks watch over each other by the links between them.
#include "common/collective/host_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace muster::collective {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr Duration kSoon = std::chrono::milliseconds(200);  // many looks at the links

// Rank 0 is linked with the others, which are closed by this test's hand.
class HostTeamTest : public ::testing::Test {
 protected:
  HostTeamTest() {
    const std::string name = fmt::format("muster-host-group-{}", getpid());
    for (int rank = 0; rank < kRanks; ++rank) {
      auto segment = rank == 0 ? Segment::Create(name, HostLayout(kRanks))
                               : Segment::Open(name, HostLayout(kRanks));
      EXPECT_TRUE(segment.ok()) << segment.status();
      if (rank == 0) segment_ = *segment;
      Links::Connections connections;
      for (int peer = 1; rank == 0 && peer < kRanks; ++peer) {
        std::array<int, 2> ends;
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
        connections[{peer, Channel::kNotices}] = std::make_unique<transport::DataConnection>(
            transport::MakeTcpStream(ends[0]), transport::ConnectionInfo{});
        others_[peer] = transport::MakeTcpStream(ends[1]);
      }
      links_[rank] = std::make_unique<Links>(
          Links::Options{
              .rank = rank,
              .topology = MakeTopology(RanksByHost({"h", "h", "h"}), Algorithm::kSharedMemory)},
          std::move(connections));
      teams_[rank] = std::make_unique<HostGroup>(*std::move(segment), std::vector<int>{0, 1, 2},
                                                 links_[rank].get(), false);
    }
  }

  absl::Status Come(int rank) {
    Plan nothing;
    nothing.parts.resize(kRanks);
    return teams_[rank]->Run(nothing, {.sequence = 1}, Clock::now() + std::chrono::seconds(20));
  }

  std::shared_ptr<Segment> segment_;
  std::array<std::unique_ptr<transport::ByteStream>, kRanks> others_;
  std::array<std::unique_ptr<Links>, kRanks> links_;
  std::array<std::unique_ptr<HostGroup>, kRanks> teams_;
};

TEST_F(HostTeamTest, WhoHasComeAndLeftIsNotMissed) {
  absl::Status first, second;
  std::thread waits([&] { first = Come(0); });
  std::thread leaves([&] { second = Come(1); });
  const MonotonicTime limit = Clock::now() + std::chrono::seconds(20);
  while (segment_->cells()[1].word == 0 && Clock::now() < limit) std::this_thread::yield();
  others_[1].reset();
  std::this_thread::sleep_for(kSoon);
  EXPECT_TRUE(Come(2).ok());
  waits.join();
  leaves.join();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_TRUE(second.ok()) << second;
}

TEST_F(HostTeamTest, WhoIsLostBeforeItComesIsNamedAlsoByThoseWhoAreNotLinkedWithIt) {
  absl::Status first, second;
  std::thread watches([&] {
    first = Come(0);
    teams_[0]->Poison(first);
  });
  std::thread waits([&] { second = Come(1); });
  others_[2].reset();
  watches.join();
  waits.join();
  EXPECT_TRUE(absl::IsUnavailable(first)) << first;
  EXPECT_THAT(std::string(Message(first)), HasSubstr("Lost rank 2"));
  EXPECT_TRUE(absl::IsAborted(second)) << second;
  EXPECT_EQ(teams_[1]->Reason(), first);
}

}  // namespace
}  // namespace muster::collective
