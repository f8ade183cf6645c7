// Every operation of the CPU backends over the links of its generation and no others, and what goes
// wrong among ranks that are not linked with each other.
#include "common/collective/group/links.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "common/collective/group/ring.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/collective/group_fixture.h"

namespace muster::collective {
namespace {

using testing::GroupOptions;
using ::testing::HasSubstr;
using testing::HostsOf;
using testing::MakeGroupOn;
using testing::OnEachRank;
using testing::TestGroup;

float Value(int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 7 + 1)); }

std::vector<float> Values(int rank, int64_t count, int64_t from = 0) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Value(rank, from + i);
  return values;
}

Buffer Of(std::vector<float>& data) {
  return {data.data(), static_cast<int64_t>(data.size()), DataType::kFloat32};
}

// All verbs, from and to every rank.
void RunAll(Communicator& group, int64_t count) {
  const int rank = group.rank(), size = group.size();
  const auto ranks = static_cast<float>(size * (size + 1) / 2);
  const auto expect = [&](const WorkPtr& work, const char* verb) {
    const absl::Status status = work->Wait();
    EXPECT_TRUE(status.ok()) << verb << " of " << count << " on rank " << rank << ": " << status;
  };
  std::vector<float> sum = Values(rank, count);
  expect(group.AllReduce(Of(sum), ReduceOp::kSum), "all_reduce");
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], ranks * Value(0, i)) << i;
  for (int root = 0; root < size; ++root) {
    std::vector<float> data = Values(rank, count);
    expect(group.Broadcast(Of(data), root), "broadcast");
    EXPECT_EQ(data, Values(root, count)) << "from " << root;
  }
  std::vector<float> mine = Values(rank, count), all(count * size);
  expect(group.AllGather(Of(mine), Of(all)), "all_gather");
  for (int r = 0; r < size; ++r) {
    EXPECT_EQ(std::vector<float>(all.begin() + r * count, all.begin() + (r + 1) * count),
              Values(r, count))
        << "of " << r;
  }
  std::vector<float> whole = Values(rank, count * size), part(count);
  expect(group.ReduceScatter(Of(whole), Of(part), ReduceOp::kSum), "reduce_scatter");
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(part[i], ranks * Value(0, rank * count + i)) << i;
  }
  expect(group.Barrier(), "barrier");
}

class LinksOn : public ::testing::TestWithParam<std::tuple<std::string, Backend>> {
 protected:
  std::vector<std::string> Hosts(int size) const { return HostsOf(std::get<0>(GetParam()), size); }
  Backend backend() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, LinksOn,
                         ::testing::Combine(::testing::ValuesIn(testing::LayoutNames()),
                                            ::testing::Values(Backend::kAuto, Backend::kTcp)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == Backend::kTcp ? "_tcp" : "");
                         });

TEST_P(LinksOn, CarryEveryOperation) {
  for (int size = 1; size <= 9 && !HasFailure(); ++size) {
    SCOPED_TRACE(fmt::format("{} ranks", size));
    TestGroup group = MakeGroupOn(Hosts(size), backend());
    OnEachRank(size, [&](int rank) {
      for (const int64_t count : {0, 1, 5, 3001}) RunAll(group[rank], count);
    });
  }
}

// The others may still be at it, and see its connections close.
TEST_P(LinksOn, CostNobodyItsResultWhenTheFirstOnesLeaveAfterTheLastOperation) {
  for (const uint64_t round : {1, 2, 3, 4, 5, 6}) {
    TestGroup group = MakeGroupOn(Hosts(9), backend(), {.generation = round});
    OnEachRank(9, [&](int rank) {
      std::vector<float> data = Values(rank, 70'001);
      const WorkPtr work = round % 2 == 0 ? group[rank].AllReduce(Of(data), ReduceOp::kSum)
                                          : group[rank].Broadcast(Of(data), 5);
      const absl::Status status = work->Wait();
      EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status;
      group.ranks[rank].reset();
      EXPECT_EQ(data[70'000], round % 2 == 0 ? 45 * Value(0, 70'000) : Value(5, 70'000));
    });
  }
}

// Seven are not linked with it, and those that are have it in the middle of a frame.
TEST_P(LinksOn, ReachAllWithTheReasonOfOneThatGivesUp) {
  TestGroup group = MakeGroupOn(Hosts(9), backend());
  std::atomic<int> waiting{0};
  OnEachRank(9, [&](int rank) {
    if (rank == 4) {
      EXPECT_TRUE(testing_support::Becomes([&] { return waiting == 8; }))
          << waiting << " of 8 ranks have begun";
      group[4].Abort(PeerLost("worker 77 was lost"));
      return;
    }
    std::vector<float> data(500'000);
    const WorkPtr work = group[rank].AllReduce(Of(data), ReduceOp::kSum);
    ++waiting;
    const absl::Status status = work->Wait();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(Message(status), "worker 77 was lost") << "on rank " << rank;
  });
}

TEST_P(LinksOn, NameSeveralThatNeverComeAndNobodyElse) {
  TestGroup group = MakeGroupOn(Hosts(9), backend(), {.timeout = std::chrono::seconds(3)});
  const std::set<int> absent = {2, 6};
  std::atomic<int> ready{0};
  OnEachRank(9, [&](int rank) {
    if (absent.contains(rank)) return;
    std::vector<float> data(1000);
    ++ready;
    // Each has the whole limit.
    EXPECT_TRUE(testing_support::Becomes([&] { return ready == 7; }))
        << ready << " of 7 ranks are here";
    const absl::Status status = group[rank].AllReduce(Of(data), ReduceOp::kSum)->Wait();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    const std::string message(Message(status));
    EXPECT_THAT(message, HasSubstr("did not come to all_reduce(float32 x 1000, sum)"));
    bool one = false;
    for (int r = 0; r < 9; ++r) {
      const bool named = message.find(fmt::format("(worker:{})", r)) != std::string::npos;
      EXPECT_LE(named, absent.contains(r)) << message;
      one |= named;
    }
    EXPECT_TRUE(one) << message;
  });
}

// A stand-in for an algorithm that was added without its links.
TEST(Links, AnOperationOverALinkThatWasNotOpenedFailsAndNamesIt) {
  Links links({.rank = 0,
               .topology = MakeTopology(RanksByHost(HostsOf("alone", 5)), Algorithm::kRing),
               .labels = {"chief:0", "worker:0", "worker:1", "worker:2", "worker:3"}},
              {});
  Ring ring(&links, false);
  Signature signature{.sequence = 1, .count = 1, .type = DataType::kInt64};
  const absl::Status status =
      RingBarrier(ring, {0, 2, 4}, signature, Clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("chief 0 <-> worker 3"));
}

}  // namespace
}  // namespace muster::collective
