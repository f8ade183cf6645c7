#include "deploy/ranks/ranked_cluster.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace muster::ranks {
namespace {

using testing::HasSubstr;

Ranks Processes(int size, int rank) {
  Ranks ranks;
  ranks.rank = rank;
  for (int i = 0; i < size; ++i) ranks.addresses.push_back({fmt::format("n{}", i), 12000});
  return ranks;
}

// The task of each rank, as `muster cluster` reads it back.
std::vector<std::string> Tasks(int size, const RankRoles& roles) {
  std::vector<std::string> tasks;
  for (int rank = 0; rank < size; ++rank) {
    const auto text = TfConfigOf(Processes(size, rank), roles);
    EXPECT_TRUE(text.ok()) << text.status();
    const auto config = ParseTfConfig(*text);
    EXPECT_TRUE(config.ok()) << config.status();
    const std::string host = config->cluster.AddressOf(*config->task).host;
    EXPECT_EQ(host, fmt::format("n{}", rank));
    tasks.push_back(config->task->ToString());
    EXPECT_EQ(config->rank().value_or(rank), rank);
  }
  return tasks;
}

using Names = std::vector<std::string>;

TEST(RankedCluster, RanksKeepTheirOrder) {
  EXPECT_EQ(Tasks(4, {}), (Names{"chief:0", "worker:0", "worker:1", "worker:2"}));
  EXPECT_EQ(Tasks(3, {.chief = false}), (Names{"worker:0", "worker:1", "worker:2"}));
  EXPECT_EQ(Tasks(6, {.ps = 2, .evaluator = true}),
            (Names{"chief:0", "worker:0", "worker:1", "ps:0", "ps:1", "evaluator:0"}));
  EXPECT_EQ(Tasks(3, {.ps = 1, .evaluator = true, .chief = false}),
            (Names{"worker:0", "ps:0", "evaluator:0"}));
}

TEST(RankedCluster, AChiefAloneIsAMember) {
  EXPECT_EQ(Tasks(1, {}), (Names{"chief:0"}));
  EXPECT_EQ(Tasks(2, {.evaluator = true}), (Names{"chief:0", "evaluator:0"}));
  EXPECT_EQ(Tasks(1, {.chief = false}), (Names{"worker:0"}));
}

TEST(RankedCluster, RefusesTooFewProcesses) {
  const auto refused = [](int size, const RankRoles& roles) {
    const auto text = TfConfigOf(Processes(size, 0), roles);
    EXPECT_FALSE(text.ok());
    return std::string(Message(text.status()));
  };
  EXPECT_THAT(refused(2, {.ps = 1}), HasSubstr("starts 2 processes, and the tasks need 3: a chief, "
                                               "1 ps, 0 evaluator, and at least one worker"));
  EXPECT_THAT(refused(1, {.evaluator = true}), HasSubstr("starts 1 process, and the tasks need 2"));
  EXPECT_THAT(refused(1, {.ps = 1, .chief = false}), HasSubstr("need 2: 1 ps"));
  EXPECT_THAT(refused(0, {}), HasSubstr("starts 0 processes"));
  EXPECT_THAT(refused(4, {.ps = -1}), HasSubstr("--ps is -1"));
}

}  // namespace
}  // namespace muster::ranks
