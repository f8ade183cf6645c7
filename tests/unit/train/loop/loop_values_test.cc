// Values across replicas: run, reduce, gather, local_results, and what a step gives.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

#include "common/data/pipeline.h"
#include "tests/unit/train/ten_examples.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::MakeJob;
using testing::RunLocally;
using testing::SquaredError;
using testing::TestProgram;

// Returns the results of a replica's loop.
using Body = std::function<std::vector<Nested>(TestProgram&, Loop&)>;
struct Outcome {
  absl::Status status;
  std::map<int, std::vector<Nested>> values;
};
Outcome OnReplicas(int replicas, const Body& body) {
  Outcome outcome;
  std::mutex mutex;
  const at::Tensor x = at::ones({8, 2});
  const auto run = RunLocally(MakeJob(1), replicas, [&](TestProgram& p) {
    LeastSquares(p, x, at::ones({8}));
    p.on_run = [&](TestProgram& self, Loop& loop) {
      auto values = body(self, loop);
      std::lock_guard<std::mutex> lock(mutex);
      outcome.values[loop.replica()] = std::move(values);
    };
  });
  outcome.status = run.status;
  return outcome;
}

void ExpectTensor(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_EQ(got.scalar_type(), want.scalar_type()) << what;
  EXPECT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_TRUE(at::equal(got.cpu(), want)) << what << ": " << got;
}

// The example of TensorFlow's all_reduce: {'a': 1, 'b': [40, 1]} and {'a': 3, 'b': [2, 98]}.
TEST(LoopValues, ReduceGivesTensorFlowsDocumentedValues) {
  const auto got = OnReplicas(2, [](TestProgram&, Loop& loop) -> std::vector<Nested> {
    const bool first = loop.replica() == 0;
    const PerReplica value = loop.run([&]() -> Nested {
      return {{"a", first ? 1 : 3},
              {"b", at::tensor(first ? std::vector<int64_t>{40, 1} : std::vector<int64_t>{2, 98})}};
    });
    return {loop.reduce(ReduceOp::kSum, value), loop.reduce(ReduceOp::kMean, value),
            loop.reduce(ReduceOp::kMin, value), loop.reduce(ReduceOp::kMax, value)};
  });
  ASSERT_TRUE(got.status.ok()) << got.status;
  for (int r = 0; r < 2; ++r) {
    const auto& v = got.values.at(r);
    ExpectTensor(v[0]["a"].tensor(), at::scalar_tensor(4, at::kLong), "sum a");
    ExpectTensor(v[0]["b"].tensor(), at::tensor({42, 99}, at::kLong), "sum b");
    ExpectTensor(v[1]["a"].tensor(), at::scalar_tensor(2., at::kDouble), "mean a");
    ExpectTensor(v[1]["b"].tensor(), at::tensor({21., 49.5}, at::kDouble), "mean b");
    ExpectTensor(v[2]["b"].tensor(), at::tensor({2, 1}, at::kLong), "min b");
    ExpectTensor(v[3]["b"].tensor(), at::tensor({40, 98}, at::kLong), "max b");
  }
}

class ValuesOverReplicas : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, ValuesOverReplicas, ::testing::Values(1, 2, 4));

// 0, 1, ..., 9 in slices that are uneven, and empty where there are more replicas than examples.
at::Tensor SliceOf(const at::Tensor& all, const Loop& loop) {
  const data::Slice slice = data::ReplicaSlice(0, all.size(0), loop.replica(), loop.num_replicas());
  return all.slice(0, slice.begin, slice.end);
}

TEST_P(ValuesOverReplicas, AnAxisReducesOverAllElementsHoweverTheyAreSpread) {
  const at::Tensor all = at::arange(10, at::kFloat).reshape({5, 2});
  const at::Tensor few = at::arange(3, at::kInt) - 1;
  const auto got = OnReplicas(GetParam(), [&](TestProgram&, Loop& loop) -> std::vector<Nested> {
    const PerReplica value(
        Nested{{"all", SliceOf(all, loop)}, {"deep", Nested{{"few", SliceOf(few, loop)}}}});
    return {loop.reduce(ReduceOp::kSum, value, 0),
            loop.reduce(ReduceOp::kMean, value, 0),
            loop.reduce(ReduceOp::kMin, value, 0),
            loop.reduce(ReduceOp::kMax, value, 0),
            loop.gather(value),
            loop.gather(PerReplica(SliceOf(all, loop).t()), -1)};
  });
  ASSERT_TRUE(got.status.ok()) << got.status;
  for (int r = 0; r < GetParam(); ++r) {
    const auto& v = got.values.at(r);
    ExpectTensor(v[0]["all"].tensor(), at::tensor({20.f, 25.f}), "sum");
    ExpectTensor(v[1]["all"].tensor(), at::tensor({4.f, 5.f}), "mean");
    ExpectTensor(v[2]["all"].tensor(), at::tensor({0.f, 1.f}), "min");
    ExpectTensor(v[3]["all"].tensor(), at::tensor({8.f, 9.f}), "max");
    ExpectTensor(v[0]["deep"]["few"].tensor(), at::scalar_tensor(0, at::kLong), "sum");
    ExpectTensor(v[1]["deep"]["few"].tensor(), at::scalar_tensor(0., at::kDouble), "mean");
    ExpectTensor(v[2]["deep"]["few"].tensor(), at::scalar_tensor(-1, at::kInt), "min");
    ExpectTensor(v[3]["deep"]["few"].tensor(), at::scalar_tensor(1, at::kInt), "max");
    ExpectTensor(v[4]["all"].tensor(), all, "gather");
    ExpectTensor(v[4]["deep"]["few"].tensor(), few, "gather");
    ExpectTensor(v[5].tensor(), all.t().contiguous(), "gather along the last axis");
  }
}

TEST_P(ValuesOverReplicas, TypesAndShapesStayAndScalarsGatherToAVector) {
  const auto got = OnReplicas(GetParam(), [&](TestProgram&, Loop& loop) -> std::vector<Nested> {
    const int r = loop.replica();
    const PerReplica value = loop.values_from_function([](const ReplicaContext& context) -> Nested {
      return {{"half", at::full({2}, 0.5 + context.replica, at::kHalf)},
              {"flag", context.replica == 0},
              {"byte", at::full({}, 200, at::kByte)},
              {"nan", context.replica == 0 ? std::nan("") : 1.0}};
    });
    EXPECT_EQ(loop.num_replicas(), GetParam());
    std::vector<Nested> values = {loop.reduce(ReduceOp::kMax, value),
                                  loop.reduce(ReduceOp::kMin, value),
                                  loop.reduce(ReduceOp::kSum, value), loop.gather(PerReplica(r))};
    for (const Nested& local : loop.local_results(value)) values.push_back(local);
    return values;
  });
  ASSERT_TRUE(got.status.ok()) << got.status;
  const int n = GetParam();
  for (int r = 0; r < n; ++r) {
    const auto& v = got.values.at(r);
    ExpectTensor(v[0]["half"].tensor(), at::full({2}, n - 0.5, at::kHalf), "max of half");
    ExpectTensor(v[1]["half"].tensor(), at::full({2}, 0.5, at::kHalf), "min of half");
    ExpectTensor(v[0]["flag"].tensor(), at::scalar_tensor(true, at::kBool), "any");
    ExpectTensor(v[1]["flag"].tensor(), at::scalar_tensor(n == 1, at::kBool), "all");
    ExpectTensor(v[2]["flag"].tensor(), at::scalar_tensor(1, at::kLong), "count");
    ExpectTensor(v[2]["byte"].tensor(), at::scalar_tensor(200 * n, at::kLong), "no overflow");
    EXPECT_TRUE(std::isnan(v[0]["nan"].tensor().item<double>()));
    EXPECT_TRUE(std::isnan(v[1]["nan"].tensor().item<double>()));
    ExpectTensor(v[3].tensor(), at::arange(n, at::kLong), "gather of scalars");
    ASSERT_EQ(v.size(), 4u + n);
    for (int other = 0; other < n; ++other)
      EXPECT_EQ(v[4 + other]["half"].tensor()[0].item<float>(), 0.5f + other) << "device order";
  }
}

struct Wrong {
  std::string name;
  std::function<void(Loop&)> call;
  std::string sentence;
};

TEST(LoopValues, WhatDiffersBetweenReplicasIsOneSentence) {
  const std::vector<Wrong> cases = {
      {"names",
       [](Loop& loop) {
         loop.reduce(ReduceOp::kSum, PerReplica(Nested{{loop.replica() == 1 ? "b" : "a", 1.0}}));
       },
       "replica 0 calls reduce(sum) of a: Double [], replica 1 calls reduce(sum) of b: Double []: "
       "every replica must make the same calls"},
      {"shapes",
       [](Loop& loop) {
         loop.reduce(ReduceOp::kMean, PerReplica(Nested{{"a", at::ones({2, 2 + loop.replica()})}}),
                     0);
       },
       "replica 0 calls reduce(mean, axis 0) of a: Float [*, 2], replica 1 calls reduce(mean, axis "
       "0) of a: Float [*, 3]"},
      {"types",
       [](Loop& loop) {
         loop.gather(PerReplica(at::ones({2}, loop.replica() == 0 ? at::kFloat : at::kDouble)));
       },
       "replica 0 calls gather of Float [*], replica 1 calls gather of Double [*]"},
      {"kinds",
       [](Loop& loop) {
         loop.gather(loop.replica() == 0 ? PerReplica(at::ones({2})) : PerReplica());
       },
       "replica 0 calls gather of Float [*], replica 1 calls gather of nothing"},
      {"axis", [](Loop& loop) { loop.reduce(ReduceOp::kSum, PerReplica(at::ones({2})), 1); },
       "reduce(sum, axis 1): \"\" has shape [2], and no axis 1"},
      {"empty", [](Loop& loop) { loop.reduce(ReduceOp::kMax, PerReplica(at::ones({0})), 0); },
       "reduce(max, axis 0): no replica has an element"},
      {"call",
       [](Loop& loop) {
         const PerReplica value(at::ones({2}));
         loop.replica() == 0 ? loop.reduce(ReduceOp::kSum, value) : loop.gather(value);
       },
       "replica 0 calls reduce(sum) of Float [2], replica 1 calls gather of Float [*]"},
  };
  for (const Wrong& wrong : cases) {
    std::mutex mutex;
    std::vector<std::string> errors;
    const auto got = OnReplicas(3, [&](TestProgram&, Loop& loop) -> std::vector<Nested> {
      try {
        wrong.call(loop);
      } catch (const std::exception& error) {
        std::lock_guard<std::mutex> lock(mutex);
        errors.push_back(error.what());
        throw;
      }
      return {};
    });
    EXPECT_EQ(ExitCodeOf(got.status), ExitCode::kProgramFailed) << wrong.name << got.status;
    ASSERT_EQ(errors.size(), 3u) << wrong.name;
    for (const std::string& sentence : errors) EXPECT_THAT(sentence, HasSubstr(wrong.sentence));
  }
}

TEST_P(ValuesOverReplicas, AStepTellsWhatItDid) {
  const auto got =
      OnReplicas(GetParam(), [&](TestProgram& self, Loop& loop) -> std::vector<Nested> {
        data::Batch batch;
        std::vector<Nested> all;
        while (loop.next(&batch)) {
          const StepOutcome outcome = loop.step([&](Step& step, const data::Batch& part) -> Nested {
            const at::Tensor loss = SquaredError(self, part);
            step.minimize(self.optimizers["sgd"], loss);
            step.report("MAE(X, F(G(X)))", loss.sqrt());
            return {{"losses", loss}, {"replica", step.replica()}};
          });
          EXPECT_FALSE(outcome.results.local()["losses"].tensor().requires_grad());
          all.push_back(Nested{{"number", outcome.number},
                               {"loss", outcome.loss},
                               {"rate", outcome.learning_rate},
                               {"examples", outcome.examples},
                               {"mae", outcome.values.at("MAE(X, F(G(X)))")}});
          all.push_back(loop.gather(outcome.results));
        }
        return all;
      });
  ASSERT_TRUE(got.status.ok()) << got.status;
  for (const auto& [replica, v] : got.values) {
    ASSERT_EQ(v.size(), 4u);
    EXPECT_EQ(v[0]["number"].tensor().item<int64_t>(), 1);
    EXPECT_DOUBLE_EQ(v[0]["loss"].tensor().item<double>(), 1) << "0 is predicted, 1 is right";
    EXPECT_DOUBLE_EQ(v[0]["rate"].tensor().item<double>(), 0.1);
    EXPECT_EQ(v[0]["examples"].tensor().item<int64_t>(), 4);
    EXPECT_DOUBLE_EQ(v[0]["mae"].tensor().item<double>(), 1);
    ExpectTensor(v[1]["losses"].tensor(), at::ones({4}), "all replicas' losses");
    EXPECT_EQ(v[2]["number"].tensor().item<int64_t>(), 2);
    EXPECT_LT(v[2]["loss"].tensor().item<double>(), 1);
  }
}

}  // namespace
}  // namespace muster
