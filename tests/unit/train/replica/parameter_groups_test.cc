// Groups and tied weights, as programs and jobs give them.
#include "common/train/replica/parameter_groups.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "common/train/state/snapshot.h"
#include "tests/unit/train/kept.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestProgram;

Job SmallJob(Json optimizer = nullptr) {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  job.max_steps = 3;
  job.optimizer = std::move(optimizer);
  return job;
}

const Json kNoDecay = {{"parameters", "*bias"}, {"weight_decay", 0}};

// "net" with "layer.weight" and "layer.bias", and with `two` "head" with "weight" and "bias".
ProgramFactory Factory(Json optimizer, bool two = false, Json of_head = "sgd") {
  return [=] {
    auto program = std::make_unique<TestProgram>();
    program->on_build = [=](TestProgram& self, Builder& builder) {
      auto layer = std::make_shared<testing::Tensors>();
      layer->parameter("weight", at::ones({3, 2}));
      layer->parameter("bias", at::ones({2}));
      self.model->register_module("layer", layer);
      builder.model("net", self.model);
      builder.optimizer("main", {"net"}, optimizer, 0.1);
      builder.dataset(Split::kTrain, testing::Tensors2(at::zeros({8, 3}), at::zeros({8})));
      if (!two) return;
      self.second = std::make_shared<testing::Tensors>();
      self.second->parameter("weight", at::ones({2}));
      self.second->parameter("bias", at::ones({1}));
      builder.model("head", self.second);
      builder.optimizer("last", {"head"}, of_head, 0.1);
    };
    return program;
  };
}

absl::StatusOr<std::vector<std::string>> GroupsOf(const Job& job, const ProgramFactory& factory) {
  auto replica = Replica::Make(job, factory, at::kCPU);
  if (!replica.ok()) return replica.status();
  return DescribeGroups(**replica);
}

std::string Refusal(const Job& job, const ProgramFactory& factory) {
  const auto groups = GroupsOf(job, factory);
  EXPECT_EQ(ExitCodeOf(groups.status()), ExitCode::kConfiguration) << groups.status();
  return std::string(Message(groups.status()));
}

Json With(const char* name, std::vector<Json> groups) {
  return {{"name", name}, {"groups", Json(std::move(groups))}};
}

TEST(ParameterGroups, AreListedWithTheirCounts) {
  const auto groups = GroupsOf(SmallJob(With("adamw", {kNoDecay})), Factory("sgd"));
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_THAT(*groups,
              ElementsAre("optimizer \"main\", group 1 (*bias: weight_decay=0): 1 parameter, "
                          "2 numbers",
                          "optimizer \"main\", in no group: 1 parameter, 6 numbers"));
  EXPECT_TRUE(GroupsOf(SmallJob("adamw"), Factory("sgd"))->empty());
}

TEST(ParameterGroups, NamesAreThoseOfCheckpoints) {
  const auto matches = [](const char* glob, bool two) {
    const Json group = {{"parameters", glob}, {"learning_rate_scale", 0.5}};
    return GroupsOf(SmallJob({{"main", With("sgd", {group})}}), Factory("sgd", two)).ok();
  };
  EXPECT_TRUE(matches("net.layer.weight", false));
  EXPECT_TRUE(matches("layer.weight", false)) << "a program's only model has no prefix";
  EXPECT_TRUE(matches("net.layer.weight", true));
  EXPECT_FALSE(matches("layer.weight", true)) << "one of two models has";
}

TEST(ParameterGroups, AJobWithoutGroupsKeepsThePrograms) {
  const Json of_program = With("sgd", {kNoDecay});
  EXPECT_EQ(GroupsOf(SmallJob(), Factory(of_program))->size(), 2u);
  EXPECT_EQ(GroupsOf(SmallJob("adamw"), Factory(of_program))->size(), 2u);
  EXPECT_EQ(GroupsOf(SmallJob({{"name", "adamw"}, {"beta1", 0.8}}), Factory(of_program))->size(),
            2u);
  EXPECT_TRUE(GroupsOf(SmallJob(With("adamw", {})), Factory(of_program))->empty());
  EXPECT_THAT(Refusal(SmallJob("ftrl"), Factory(of_program)),
              ::testing::AllOf(HasSubstr("optimizer.groups[0].weight_decay"),
                               HasSubstr("\"groups\" in the job replace the program's")));
}

TEST(ParameterGroups, OneThatMatchesNothingIsRefused) {
  const Json wrong = {{"parameters", "layer.wieght"}, {"weight_decay", 0}};
  EXPECT_EQ(Refusal(SmallJob(With("sgd", {kNoDecay, wrong})), Factory("sgd")),
            "optimizer.groups[1].parameters [\"layer.wieght\"] matches no parameter of optimizer "
            "\"main\": the nearest names are layer.weight, layer.bias");
  const Json far = {{"parameters", "zzz*"}, {"weight_decay", 0}};
  EXPECT_THAT(Refusal(SmallJob(With("sgd", {far})), Factory("sgd")),
              HasSubstr("the names are layer.weight, layer.bias"));
  const Json shadowed = {{"parameters", "layer.bias"}, {"weight_decay", 1}};
  EXPECT_THAT(Refusal(SmallJob(With("sgd", {kNoDecay, shadowed})), Factory("sgd")),
              HasSubstr("put it before them"));
}

// A choice for all optimizers of a program has to fit one of them.
TEST(ParameterGroups, OfAllOptimizersMatchInOneOfThem) {
  const Json head = {{"parameters", "head.*"}, {"learning_rate_scale", 0.1}};
  const auto groups =
      GroupsOf(SmallJob(With("adamw", {kNoDecay, head})), Factory("sgd", /*two=*/true));
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->size(), 6u);
  EXPECT_THAT(Refusal(SmallJob({{"main", With("sgd", {head})}}), Factory("sgd", true)),
              HasSubstr("matches no parameter of optimizer \"main\""));
}

TEST(ParameterGroups, TablesHaveNone) {
  const ProgramFactory factory = [] {
    auto program = Factory("sgd")();
    auto& test = static_cast<TestProgram&>(*program);
    test.on_build = [inner = test.on_build](TestProgram& self, Builder& builder) {
      inner(self, builder);
      builder.embedding("users", {});
    };
    return program;
  };
  EXPECT_EQ(
      Refusal(SmallJob(With("sgd", {kNoDecay})), factory),
      "the optimizer of embedding \"users\" has groups of parameters, which tables cannot do: "
      "give it an optimizer of its own, by its name");
}

// ---- Tied weights

// "w" is used under two names.
void Tied(TestProgram& program) {
  program.on_build = [](TestProgram& self, Builder& builder) {
    const at::Tensor w = at::ones({3}).set_requires_grad(true);
    self.model->parameter("a", w);
    self.model->parameter("b", at::zeros({}));
    self.model->parameter("z", w);
    builder.model("net", self.model);
    self.optimizers["it"] = builder.optimizer("it", {"net"}, "adam", 0.1);
    at::manual_seed(3);
    builder.dataset(Split::kTrain, testing::Tensors2(at::randn({12, 3}), at::randn({12})));
  };
  program.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    testing::Tensors& model = *self.model;
    const at::Tensor all = at::matmul(batch[0], model["a"] + 2 * model["z"]) + model["b"];
    step.minimize(self.optimizers["it"], (all - batch[1]).square());
  };
}

checkpoint::Snapshot SnapshotOf(StrategyKind strategy) {
  testing::KeptCheckpoints kept;
  Job job = SmallJob();
  job.strategy = strategy;
  testing::RunOptions options;
  options.job = job;
  options.checkpoints = &kept;
  const auto run = testing::Run(std::move(options), Tied);
  EXPECT_TRUE(run.status.ok()) << run.status;
  return kept.kept.back();
}

std::set<std::string> NamesIn(const checkpoint::TensorSet& set) {
  std::set<std::string> names;
  for (const checkpoint::Tensor& tensor : set.tensors) names.insert(tensor.name);
  return names;
}

TEST(TiedWeights, HaveTheirSlotsUnderTheFirstNameWhateverTheStrategy) {
  for (const StrategyKind strategy : {StrategyKind::kMirrored, StrategyKind::kCentralStorage}) {
    const checkpoint::Snapshot snapshot = SnapshotOf(strategy);
    EXPECT_EQ(NamesIn(snapshot.optimizer),
              (std::set<std::string>{"it.a.exp_avg", "it.a.exp_avg_sq", "it.a.step", "it.b.exp_avg",
                                     "it.b.exp_avg_sq", "it.b.step"}));
    float moment = 0;
    std::memcpy(&moment, snapshot.optimizer.Find("it.a.exp_avg")->data, sizeof moment);
    EXPECT_NE(moment, 0);
    EXPECT_EQ(NamesIn(snapshot.model), (std::set<std::string>{"a", "b", "z"}));
  }
}

// Restores a checkpoint of an older version: a set of slots under each name, of which one was up to
// date.
void RestoresFrom(bool last_is_live) {
  checkpoint::Snapshot snapshot = SnapshotOf(StrategyKind::kMirrored);
  const std::vector<float> zeros(3);
  const float none = 0;
  std::vector<checkpoint::Tensor> others;
  std::vector<float> live(3);
  std::memcpy(live.data(), snapshot.optimizer.Find("it.a.exp_avg")->data, 12);
  for (checkpoint::Tensor& tensor : snapshot.optimizer.tensors) {
    if (tensor.name.substr(0, 5) != "it.a.") continue;
    checkpoint::Tensor other = tensor;
    other.name = "it.z." + tensor.name.substr(5);
    checkpoint::Tensor& dead = last_is_live ? tensor : other;
    // Servers counted the steps of both.
    if (tensor.name != "it.a.step")
      dead.data = reinterpret_cast<const char*>(zeros.data());
    else if (last_is_live)
      dead.data = reinterpret_cast<const char*>(&none);
    others.push_back(other);
  }
  snapshot.optimizer.tensors.insert(snapshot.optimizer.tensors.end(), others.begin(), others.end());
  const Job job = SmallJob();
  auto replica = Replica::Make(
      job,
      [] {
        auto program = std::make_unique<TestProgram>();
        Tied(*program);
        return program;
      },
      at::kCPU);
  ASSERT_TRUE(replica.ok()) << replica.status();
  LoopState state;
  const absl::Status restored = RestoreReplica(snapshot, job, replica->get(), &state);
  ASSERT_TRUE(restored.ok()) << restored;
  const Optimizer& rule = *(*replica)->optimizers()[0].rule;
  ASSERT_EQ(rule.parameters().size(), 2u);
  EXPECT_TRUE(at::equal(rule.slot(0)[0], at::tensor(live)));
  EXPECT_EQ(rule.slot(2)[0].item<float>(), 3);
}

TEST(TiedWeights, ResumeFromCheckpointsWithASetOfSlotsUnderEachName) {
  RestoresFrom(/*last_is_live=*/true);
  RestoresFrom(/*last_is_live=*/false);
}

}  // namespace
}  // namespace muster
