// Tests the links of ranks: symmetric, connected, few, and all that any operation uses.
#include "common/collective/group/topology.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/collective/group_fixture.h"

namespace muster::collective {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kSharedMemory,
                                     Algorithm::kHierarchical};

Topology Make(const std::string& layout, int size, Algorithm algorithm) {
  return MakeTopology(RanksByHost(testing::HostsOf(layout, size)), algorithm);
}

// How many ranks can be reached from rank 0, without going through `gone`.
size_t Reached(const Topology& topology, int gone) {
  std::vector<int> open = {gone == 0 ? 1 : 0};
  std::set<int> seen(open.begin(), open.end());
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int peer : topology.peers[at]) {
      if (peer != gone && seen.insert(peer).second) open.push_back(peer);
    }
  }
  return seen.size();
}

class TopologyOf : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Body>
  void OnEach(Body&& body) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (int size = 1; size <= 70 && !HasFailure(); ++size) {
        SCOPED_TRACE(fmt::format("{} ranks, algorithm {}", size, static_cast<int>(algorithm)));
        body(Make(GetParam(), size, algorithm), size);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, TopologyOf, ::testing::ValuesIn(testing::LayoutNames()),
                         [](const auto& info) { return info.param; });

TEST_P(TopologyOf, IsSymmetric) {
  OnEach([](const Topology& topology, int size) {
    ASSERT_THAT(topology.peers, SizeIs(size));
    for (int r = 0; r < size; ++r) {
      const std::vector<int>& peers = topology.peers[r];
      EXPECT_TRUE(std::is_sorted(peers.begin(), peers.end()));
      EXPECT_EQ(std::set<int>(peers.begin(), peers.end()).size(), peers.size());
      for (const int peer : peers) {
        EXPECT_NE(peer, r);
        EXPECT_THAT(topology.peers[peer], Contains(r));
      }
    }
  });
}

// So that what one knows can reach all, and the loss of any is noticed; also around one that is not
// there.
TEST_P(TopologyOf, IsConnectedAlsoWithoutAnyOneRank) {
  OnEach([](const Topology& topology, int size) {
    EXPECT_EQ(Reached(topology, -1), size);
    for (int gone = 0; size > 1 && gone < size; ++gone) {
      EXPECT_EQ(Reached(topology, gone), size - 1) << "without " << gone;
    }
  });
}

TEST_P(TopologyOf, LinksARankWithFourAtMostWhateverTheNumber) {
  OnEach([](const Topology& topology, int) {
    const size_t most = topology.algorithm == Algorithm::kHierarchical ? 4 : 2;
    EXPECT_THAT(topology.peers, Each(SizeIs(::testing::Le(most))));
  });
}

TEST_P(TopologyOf, HasTheNeighboursOfEachRingAndNobodyElse) {
  OnEach([](const Topology& topology, int size) {
    std::vector<std::set<int>> wanted(size);
    std::vector<std::vector<int>> rings = topology.between;
    rings.push_back(topology.ring);
    for (const std::vector<int>& ring : rings) {
      for (size_t i = 0; i < ring.size(); ++i) {
        for (const size_t j : {(i + 1) % ring.size(), (i + ring.size() - 1) % ring.size()}) {
          if (ring[i] != ring[j]) wanted[ring[i]].insert(ring[j]);
        }
      }
    }
    for (int r = 0; r < size; ++r) {
      EXPECT_EQ(std::vector<int>(wanted[r].begin(), wanted[r].end()), topology.peers[r]) << r;
    }
  });
}

TEST_P(TopologyOf, HasEveryRankInItsRingAndOneRankOfEachHostInTheOthers) {
  OnEach([](const Topology& topology, int size) {
    EXPECT_EQ(std::set<int>(topology.ring.begin(), topology.ring.end()).size(), size);
    EXPECT_THAT(topology.ring, SizeIs(size));
    size_t fewest = size;
    for (const std::vector<int>& host : topology.hosts) fewest = std::min(fewest, host.size());
    EXPECT_THAT(topology.between,
                SizeIs(topology.algorithm == Algorithm::kHierarchical ? fewest : 0));
    for (size_t i = 0; i < topology.between.size(); ++i) {
      for (size_t h = 0; h < topology.hosts.size(); ++h) {
        EXPECT_EQ(topology.between[i][h], topology.hosts[h][i]);
      }
    }
  });
}

TEST(Topology, OfTwoHostsWithRanksInTurn) {
  const Topology topology = Make("two_in_turn", 5, Algorithm::kHierarchical);
  EXPECT_THAT(topology.hosts, ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
  EXPECT_THAT(topology.ring, ElementsAre(0, 2, 4, 1, 3));
  EXPECT_THAT(topology.between, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(topology.peers,
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(0, 3, 4), ElementsAre(0, 3, 4),
                          ElementsAre(0, 1, 2), ElementsAre(1, 2)));
}

TEST(Topology, OfOneRankHasNoLinks) {
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_THAT(Make("one_host", 1, algorithm).peers, ElementsAre(IsEmpty()));
  }
}

}  // namespace
}  // namespace muster::collective
