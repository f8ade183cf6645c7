#include "common/cluster/cluster_spec.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using testing::ElementsAre;

ClusterSpec Spec(const char* text) {
  const absl::StatusOr<ClusterSpec> spec = SpecFromJson(Json::parse(text));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(ClusterSpec{});
}

TEST(ClusterSpec, TasksAreMembersThenPsThenEvaluators) {
  const ClusterSpec spec =
      Spec(R"({"evaluator":["e:1"],"ps":["p:1"],"worker":["a:1","b:1"],"chief":["c:1"]})");
  std::vector<std::string> tasks;
  for (const TaskId task : spec.Tasks()) tasks.push_back(task.DisplayName());
  EXPECT_THAT(tasks, ElementsAre("chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"));
  EXPECT_EQ(spec.Coordinator(), (TaskId{TaskType::kChief, 0}));
  EXPECT_EQ(Spec(R"({"worker":["a:1"]})").Coordinator(), (TaskId{TaskType::kWorker, 0}));
  EXPECT_EQ(ClusterSpec{}.Coordinator(), std::nullopt);
  EXPECT_FALSE(spec.Has({TaskType::kWorker, 2}));
  EXPECT_FALSE(spec.Has({TaskType::kWorker, -1}));
}

TEST(ClusterSpec, JsonGoesThereAndBack) {
  const ClusterSpec spec = Spec(R"({"chief":["[::1]:1"],"worker":["a:1","b:1"],"ps":["p:1"]})");
  EXPECT_EQ(SpecFromJson(spec.ToJson())->ToJson(), spec.ToJson());
}

TEST(Digest, DoesNotDependOnTheSpelling) {
  const std::string digest =
      Spec(R"({"chief":["c:1"],"worker":["a:1","b:1"],"ps":["p:1"]})").Digest();
  EXPECT_EQ(digest.size(), 16u);
  for (const char* same : {
           R"({"Master":["C:1"],"WORKER":{"1":"b:01","0":"a:1"},"ps":["p:1"]})",
           R"({"chief":["c:1"],"worker":["a:1","b:1"],"ps":["p:1"],"evaluator":["e:1"]})",
       }) {
    EXPECT_EQ(Spec(same).Digest(), digest) << same;
  }
}

TEST(Digest, DependsOnEveryMemberAndPs) {
  const char* base = R"({"chief":["c:1"],"worker":["a:1","b:1"],"ps":["p:1"]})";
  const std::pair<const char*, const char*> others[] = {
      {R"({"chief":["c:2"],"worker":["a:1","b:1"],"ps":["p:1"]})", "cluster.chief[0]"},
      {R"({"worker":["a:1","b:1"],"ps":["p:1"]})", "cluster.chief"},
      {R"({"chief":["c:1"],"worker":["b:1","a:1"],"ps":["p:1"]})", "cluster.worker[0]"},
      {R"({"chief":["c:1"],"worker":["a:1","x:1"],"ps":["p:1"]})", "cluster.worker[1]"},
      {R"({"chief":["c:1"],"worker":["a:1"],"ps":["p:1"]})", "cluster.worker"},
      {R"({"chief":["c:1"],"worker":["a:1","b:1"],"ps":["p:2"]})", "cluster.ps[0]"},
      {R"({"chief":["c:1"],"worker":["a:1","b:1"]})", "cluster.ps"},
      {R"({"chief":["c:1"],"worker":["a:1","b:1"],"ps":["p:1","q:1"]})", "cluster.ps"},
  };
  for (const auto& [other, field] : others) {
    EXPECT_NE(Spec(other).Digest(), Spec(base).Digest()) << other;
    const auto difference = FirstDifference(Spec(base), Spec(other));
    ASSERT_TRUE(difference) << other;
    EXPECT_EQ(difference->field, field);
  }
}

TEST(FirstDifference, NamesFieldAndBothValues) {
  const auto address =
      FirstDifference(Spec(R"({"worker":["a:1"]})"), Spec(R"({"worker":["b:1"]})"));
  EXPECT_EQ(address->first, "a:1");
  EXPECT_EQ(address->second, "b:1");
  const auto count =
      FirstDifference(Spec(R"({"worker":["a:1","b:1"]})"), Spec(R"({"worker":["a:1"]})"));
  EXPECT_EQ(count->first, "2 tasks");
  EXPECT_EQ(count->second, "1 task");
  EXPECT_EQ(FirstDifference(Spec(R"({"worker":["a:1"]})"),
                            Spec(R"({"worker":["A:1"],"evaluator":["e:1"]})")),
            std::nullopt);
}

}  // namespace
}  // namespace muster
