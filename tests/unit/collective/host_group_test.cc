// A host's ranks watch over each other by the links between them.
#include "common/collective/group/host_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <tuple>
#include <vector>

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
    return teams_[rank]->Run(nothing, {.sequence = 1}, Clock::now() + std::chrono::minutes(1));
  }

  std::shared_ptr<Segment> segment_;
  std::array<std::unique_ptr<transport::ByteStream>, kRanks> others_;
  std::array<std::unique_ptr<Links>, kRanks> links_;
  std::array<std::unique_ptr<HostGroup>, kRanks> teams_;
};

TEST_F(HostTeamTest, CountsWhatIsReadAcross) {
  const auto traffic = std::make_shared<transport::Traffic>();
  segment_->set_traffic(traffic);
  const auto reduce = [&](int rank) {
    std::vector<float> values(3000, 1);
    const Plan plan = MakeInPlacePlan({values.data(), 3000, DataType::kFloat32}, kRanks, kRanks, {},
                                      /*reduce=*/true, /*gather=*/true);
    EXPECT_TRUE(
        teams_[rank]->Run(plan, {.sequence = 1}, Clock::now() + std::chrono::minutes(1)).ok());
    EXPECT_EQ(values[2999], kRanks);
  };
  std::thread one([&] { reduce(1); }), two([&] { reduce(2); });
  reduce(0);
  one.join();
  two.join();
  // Parts begin at a multiple of a cache line: rank 0 has 1008 elements, of 4 bytes.
  EXPECT_EQ(traffic->sent, 4 * (1992 + 2 * 1008));
  EXPECT_EQ(traffic->received, 4 * (2 * 1008 + 1992));
}

TEST(Traffic, IsTheSameByPlanAndBySignature) {
  constexpr int kSize = 4;
  constexpr int64_t kCount = 64 * kSize;
  std::vector<float> one(kCount), all(kCount * kSize);
  const Buffer small{one.data(), kCount, DataType::kFloat32};
  const Buffer large{all.data(), kCount * kSize, DataType::kFloat32};
  Signature s{.count = kCount, .root = 1, .type = DataType::kFloat32};
  for (const auto& [verb, send, receive] :
       {std::tuple(Verb::kAllReduce, small, small), std::tuple(Verb::kBroadcast, small, small),
        std::tuple(Verb::kAllGather, small, large), std::tuple(Verb::kReduceScatter, large, small),
        std::tuple(Verb::kBarrier, Buffer{}, Buffer{})}) {
    s.verb = verb;
    Bytes sum;
    for (int rank = 0; rank < kSize; ++rank) {
      const Bytes bytes = TrafficOf(s, rank, kSize);
      EXPECT_EQ(bytes, TrafficOf(MakePlan({s, send, receive}, rank, kSize, 1), rank))
          << VerbName(verb) << " of rank " << rank;
      sum.sent += bytes.sent;
      sum.received += bytes.received;
    }
    EXPECT_EQ(sum.sent, sum.received) << VerbName(verb);
    EXPECT_EQ(sum.sent > 0, verb != Verb::kBarrier);
  }
}

TEST_F(HostTeamTest, WhoHasComeAndLeftIsNotMissed) {
  absl::Status first, second;
  std::thread waits([&] { first = Come(0); });
  std::thread leaves([&] { second = Come(1); });
  const MonotonicTime limit = Clock::now() + std::chrono::minutes(1);
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
