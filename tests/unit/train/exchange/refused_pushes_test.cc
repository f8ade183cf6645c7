// Gradients that are not finite, and what parameter servers and a worker's step make of them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/train/exchange/exchange_worker.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kWidth;
using testing::MakeJob;
using testing::RunLocally;
using testing::Servers;
using testing::Small;
using testing::TestProgram;
using testing::Worker;

// Parameters "a" and "b" of an optimizer with slots, a table "rows", a running mean. In step 2 the
// gradients of the parts that `odd` names are not finite.
struct Odd {
  bool a = false, rows = false, mean = false;
};
constexpr int64_t kBatch = 8, kOddStep = 2;
constexpr int64_t kOddKey = 3;

data::Batch StepBatch(int64_t step) {
  const at::Tensor keys = at::arange(kBatch, at::kLong);  // kOddKey is among them
  return {keys, at::full({kBatch}, 0.1f * static_cast<float>(step))};
}

// Is 0, and has a gradient that single precision cannot hold.
at::Tensor Spoil(const at::Tensor& tensor) { return (tensor - tensor.detach()) * 1e38f * 1e38f; }

std::function<void(TestProgram&)> Program(Odd odd, bool twice = false) {
  return [odd, twice](TestProgram& p) {
    p.on_build = [](TestProgram& self, Builder& builder) {
      self.model->parameter("a", at::full({4}, 0.1f));
      self.model->parameter("b", at::full({2}, 0.2f));
      self.model->buffer("running_mean", at::ones({4}));
      self.model->buffer("least", at::tensor({HUGE_VALF, 1.f, 2.f}));
      builder.model("net", self.model);
      self.optimizers["adam"] = builder.optimizer("adam", {"net"}, "adam", 0.05);
      EmbeddingOptions options;
      options.width = kWidth;
      options.optimizer = "sgd";
      options.learning_rate = 0.1;
      self.embeddings["rows"] = builder.embedding("rows", options);
      builder.dataset(Split::kTrain, testing::Tensors2(StepBatch(1)[0], StepBatch(1)[1]));
    };
    p.on_step = [odd, twice](TestProgram& self, Step& step, const data::Batch& batch) {
      testing::Tensors& model = *self.model;
      const bool now = step.number() == kOddStep;
      {
        const at::NoGradGuard no_grad;
        model["running_mean"].mul_(0.9f).add_(now && odd.mean ? std::nanf("") : 0.2f);
        model["least"][1].sub_(0.25f);
      }
      const at::Tensor rows = step.lookup(self.embeddings["rows"], batch[0]);
      if (twice) step.minimize(self.optimizers["adam"], (model["a"].sum() - batch[1]).square());
      at::Tensor loss = (model["a"].sum() + model["b"].sum() - batch[1]).square() +
                        (rows.sum(1) - batch[1]).square();
      if (now && odd.a) loss = loss + Spoil(model["a"][1]);
      if (now && odd.rows) loss = loss + Spoil(rows[kOddKey][0]);
      step.minimize(self.optimizers["adam"], loss);
    };
  };
}

struct State {
  std::map<std::string, at::Tensor> values;
  std::map<uint64_t, std::vector<float>> rows;
  std::vector<ps::ChunkState> chunks;  // of ranges, with slots
};

State StateOf(Worker& worker, Servers& servers) {
  State state;
  for (const auto& [name, value] : testing::Values(*worker.program))
    state.values[name] = value.detach().clone();
  state.rows = servers.AllRows();
  for (const auto& store : servers.stores)
    for (int c = 0; store->Copy(c).ok(); ++c) state.chunks.push_back(*store->Copy(c));
  return state;
}

// The state after each step, from 0.
std::vector<State> Train(Worker& worker, std::unique_ptr<Servers>& servers, int64_t steps,
                         std::vector<std::set<std::string>>* refused = nullptr) {
  std::vector<State> states = {StateOf(worker, *servers)};
  for (int64_t step = 1; step <= steps; ++step) {
    const auto result = worker.Step(StepBatch(step), step);
    EXPECT_TRUE(result.ok()) << result.status();
    states.push_back(StateOf(worker, *servers));
    if (refused != nullptr) refused->push_back(worker.exchange().not_finite());
  }
  return states;
}

bool AllFiniteIn(const State& state) {
  for (const ps::ChunkState& chunk : state.chunks)
    for (const std::vector<float>& slot : chunk.slots)
      if (!AllFinite(slot)) return false;
  for (const auto& [key, row] : state.rows)
    if (!AllFinite(row)) return false;
  for (const auto& [name, value] : state.values)
    if (name != "least" && !value.isfinite().all().item<bool>()) return false;
  return true;
}

TEST(RefusedPushes, WhatIsNotFiniteIsNamedAndNothingElseSuffers) {
  std::vector<std::set<std::string>> refused;
  std::unique_ptr<Servers> servers;
  Worker worker(MakeJob(kBatch, 4), Small(2), Program({.a = true}), &servers);
  const std::vector<State> states = Train(worker, servers, 4, &refused);
  EXPECT_THAT(refused, ElementsAre(IsEmpty(), ElementsAre("net.a"), IsEmpty(), IsEmpty()));
  for (const State& state : states) EXPECT_TRUE(AllFiniteIn(state));
  // The part of "a" that has the infinity stays unchanged in this step.
  const auto part = [](const State& state) { return state.values.at("a").slice(0, 0, 2); };
  EXPECT_TRUE(at::equal(part(states[1]), part(states[2])));
  EXPECT_FALSE(at::equal(part(states[2]), part(states[3])));
  EXPECT_FALSE(at::equal(states[1].values.at("b"), states[2].values.at("b")));
  EXPECT_NE(states[1].rows, states[2].rows);
}

TEST(RefusedPushes, RowsThatAreNotFiniteAreNamedByTheirTable) {
  std::vector<std::set<std::string>> refused;
  std::unique_ptr<Servers> servers;
  Worker worker(MakeJob(kBatch, 4), Small(2), Program({.rows = true}), &servers);
  const std::vector<State> states = Train(worker, servers, 4, &refused);
  EXPECT_THAT(refused, ElementsAre(IsEmpty(), ElementsAre("rows"), IsEmpty(), IsEmpty()));
  for (const State& state : states) EXPECT_TRUE(AllFiniteIn(state));
  EXPECT_EQ(states[1].rows.at(kOddKey), states[2].rows.at(kOddKey));
  EXPECT_NE(states[2].rows.at(kOddKey), states[3].rows.at(kOddKey));
}

// The worker's own copy, too, is the servers' afterwards.
TEST(RefusedPushes, AStatisticThatIsNotFiniteIsPutBack) {
  std::vector<std::set<std::string>> refused;
  std::unique_ptr<Servers> servers;
  Worker worker(MakeJob(kBatch, 4), Small(2), Program({.mean = true}), &servers);
  const std::vector<State> states = Train(worker, servers, 4, &refused);
  EXPECT_THAT(refused,
              ElementsAre(IsEmpty(), ElementsAre("net.running_mean"), IsEmpty(), IsEmpty()));
  for (const State& state : states) EXPECT_TRUE(AllFiniteIn(state));
  const auto mean = [&](int step) { return states[step].values.at("running_mean"); };
  EXPECT_TRUE(at::equal(mean(1), mean(2)));
  EXPECT_TRUE(at::allclose(mean(4), at::full({4}, ((0.9f + 0.2f) * 0.9f + 0.2f) * 0.9f + 0.2f)));
  // An infinity that stays is no difference.
  EXPECT_TRUE(at::equal(states[4].values.at("least"), at::tensor({HUGE_VALF, 0.f, 2.f})));
}

class Float16 : public ::testing::TestWithParam<bool> {};  // whether a dense gradient overflows

TEST_P(Float16, AStepIsPushedAsAWholeOrNotAtAll) {
  const Odd odd = GetParam() ? Odd{.a = true} : Odd{.rows = true};
  Job job = MakeJob(kBatch, 4);
  job.precision = Precision::kFloat16;
  std::vector<std::set<std::string>> refused;
  std::unique_ptr<Servers> servers;
  Worker worker(job, Small(2), Program(odd), &servers);
  const std::vector<State> states = Train(worker, servers, 4, &refused);
  EXPECT_THAT(refused, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), IsEmpty()));
  for (const char* name : {"a", "b"}) {
    const auto value = [&](int step) { return states[step].values.at(name); };
    EXPECT_FALSE(at::equal(value(0), value(1))) << name;
    EXPECT_TRUE(at::equal(value(1), value(2))) << name << " of a step that was skipped";
    EXPECT_FALSE(at::equal(value(2), value(3))) << name;
  }
  EXPECT_EQ(states[1].rows, states[2].rows);
  EXPECT_NE(states[2].rows, states[3].rows);
  // The result is that of synchronous training.
  const auto alone = RunLocally(job, 1, [&](TestProgram& p) {
    Program(odd)(p);
    const auto step = p.on_step;
    p.on_step = [step](TestProgram& self, Step& of, const data::Batch&) {
      step(self, of, StepBatch(of.number()));
    };
  });
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  for (const char* name : {"a", "b", "running_mean"})
    EXPECT_TRUE(at::allclose(states[4].values.at(name), alone.replicas[0].at(name), 1e-5, 1e-6))
        << name;
}

// Earlier pushes stay. The minimize() that overflows pushes neither parameters nor rows.
TEST_P(Float16, EachMinimizeIsPushedAsAWholeOrNotAtAll) {
  const Odd odd = GetParam() ? Odd{.a = true} : Odd{.rows = true};
  Job job = MakeJob(kBatch, 4);
  job.precision = Precision::kFloat16;
  std::unique_ptr<Servers> servers;
  Worker worker(job, Small(2), Program(odd, /*twice=*/true), &servers);
  const std::vector<State> states = Train(worker, servers, 3);
  const auto b = [&](int step) { return states[step].values.at("b"); };
  EXPECT_TRUE(at::equal(b(1), b(2)));
  EXPECT_FALSE(at::equal(b(2), b(3)));
  EXPECT_FALSE(at::equal(states[1].values.at("a"), states[2].values.at("a")));
  EXPECT_EQ(states[1].rows, states[2].rows);
}

INSTANTIATE_TEST_SUITE_P(Overflow, Float16, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OfAParameter" : "OfARow"; });

}  // namespace
}  // namespace muster
