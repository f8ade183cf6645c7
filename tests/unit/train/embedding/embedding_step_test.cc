// Tests the effect of one step on the rows of embedding tables, and what a step refuses.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "common/collective/group/formation.h"
#include "common/train/step/step.h"
#include "tests/unit/train/embedding/embedding_programs.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::Small;
using testing::Summed;
using testing::TestProgram;
using testing::TheData;

class OneStep : public ::testing::Test {
 protected:
  OneStep() {
    job_.program = "test";
    job_.global_batch_size = 4;
    communicators_ = collective::MakeThreadCommunicators(1, std::chrono::seconds(5));
  }
  void Make(std::function<void(TestProgram&)> set_up) {
    auto replica = Replica::Make(
        job_,
        [&] {
          auto program = std::make_unique<TestProgram>();
          set_up(*program);
          program_ = program.get();
          return program;
        },
        c10::Device(at::kCPU));
    status_ = replica.status();
    if (!status_.ok()) return;
    replica_ = *std::move(replica);
    ASSERT_TRUE(replica_->Attach(communicators_[0].get(), {4, 4}, job_.collective).ok());
    runner_ = StepRunner::Make(replica_.get(), communicators_[0].get(), job_,
                               StepRunnerOptions{.global_batch_size = 4});
  }
  absl::Status Run(const StepRunner::Body& body) {
    const data::Batch batch = {TheData().keys.slice(0, 0, 4), TheData().y.slice(0, 0, 4)};
    StepPlan plan;
    plan.steps_done = steps_;
    plan.global_examples = 4;
    const auto result = runner_->Run(plan, batch, 4, body);
    if (result.ok()) ++steps_;
    return result.status();
  }
  std::vector<float> Row(int table, uint64_t key) {
    std::vector<float> row(3);
    EXPECT_TRUE(replica_->tables().table(table).Peek({&key, 1}, row).ok());
    return row;
  }

  Job job_;
  std::vector<std::unique_ptr<collective::Communicator>> communicators_;
  TestProgram* program_ = nullptr;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<StepRunner> runner_;
  absl::Status status_;
  int64_t steps_ = 0;
};

TEST_F(OneStep, KeysThatComeTwiceAreOneUpdate) {
  Make([](TestProgram& p) { Summed(p, Small("adagrad")); });
  const std::vector<float> before = Row(0, 7);
  at::Tensor rows;
  ASSERT_TRUE(Run([&](Step& step, const data::Batch&) {
                rows = step.lookup(program_->embeddings["left"], at::tensor({7, 8, 7, 7}));
                // More lookups of the same key, of another shape and integer type.
                const at::Tensor again = step.lookup(program_->embeddings["left"],
                                                     at::tensor({7}, at::kInt).reshape({1, 1}));
                EXPECT_EQ(again.sizes(), at::IntArrayRef({1, 1, 3}));
                EXPECT_TRUE(at::equal(again.reshape({3}), rows[0]));
                step.lookup(program_->embeddings["left"], at::tensor({9}));  // read, and no more
                step.minimize(program_->optimizers["sgd"],
                              rows.sum(1) + again.sum() + (*program_->model)["b"]);
              }).ok());
  // Three times a quarter, and four quarters more.
  const float gradient = 3 * 0.25f + 1;
  const std::vector<float> after = Row(0, 7);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(after[i], before[i] - 0.1f * gradient / std::sqrt(0.1f + gradient * gradient),
                1e-6);
  }
  EXPECT_EQ(replica_->tables().table(0).size(), 2) << "the row that was only read is not made";
  EXPECT_EQ(replica_->tables().table(1).size(), 0);
}

TEST_F(OneStep, ThatFailsLeavesTheTablesAlone) {
  Make([](TestProgram& p) { Summed(p, Small("adam")); });
  const auto step = [&](Step& step, const data::Batch& batch) {
    program_->on_step(*program_, step, batch);
  };
  ASSERT_TRUE(Run(step).ok());
  const uint64_t digest = replica_->tables().Digest();
  const absl::Status failed = Run([&](Step& s, const data::Batch& batch) {
    step(s, batch);
    throw std::runtime_error("no more");
  });
  EXPECT_THAT(std::string(Message(failed)), HasSubstr("no more"));
  EXPECT_EQ(replica_->tables().Digest(), digest);
}

TEST_F(OneStep, SeveralMinimizeCallsAddUp) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  const std::vector<float> before = Row(0, 1);
  ASSERT_TRUE(
      Run([&](Step& step, const data::Batch&) {
        const at::Tensor rows = step.lookup(program_->embeddings["left"], at::tensor({1, 2, 3, 4}));
        const at::Tensor b = (*program_->model)["b"];
        step.minimize(program_->optimizers["sgd"], rows.sum(1) + b);
        step.minimize(program_->optimizers["sgd"], 2 * rows.sum(1) + b);
      }).ok());
  EXPECT_NEAR(Row(0, 1)[0], before[0] - 0.1f * 0.75f, 1e-6);
}

TEST_F(OneStep, RefusesKeysThatAreNone) {
  Make([](TestProgram& p) { Summed(p, Small()); });
  const auto look_up = [&](EmbeddingHandle table, at::Tensor keys) {
    return std::string(
        Message(Run([&](Step& step, const data::Batch&) { step.lookup(table, keys); })));
  };
  EXPECT_THAT(look_up(program_->embeddings["left"], at::ones({2})),
              HasSubstr("lookup(\"left\") needs integer keys, and got Float"));
  EXPECT_THAT(look_up({}, at::ones({2}, at::kLong)), HasSubstr("did not declare"));
}

TEST_F(OneStep, BagsMayBeEmpty) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  ASSERT_TRUE(
      Run([&](Step& step, const data::Batch&) {
        const EmbeddingHandle left = program_->embeddings["left"];
        const at::Tensor rows = step.lookup(left, at::tensor({1, 2, 3}));
        const at::Tensor ragged = at::tensor({1, 2, 3});
        for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
          const at::Tensor bags =
              step.lookup(left, {.keys = ragged, .offsets = at::tensor({0, 0, 2, 3, 3})}, pooling);
          ASSERT_EQ(bags.sizes(), at::IntArrayRef({5, 3}));
          const float count = pooling == Pooling::kSum ? 1 : 2;
          for (const int64_t empty : {0, 3, 4}) EXPECT_TRUE(at::equal(bags[empty], at::zeros({3})));
          EXPECT_TRUE(at::allclose(bags[1], (rows[0] + rows[1]) / count));
          EXPECT_TRUE(at::equal(bags[2], rows[2]));
          const at::Tensor all_padding = at::full({2, 3}, -1, at::kLong);
          EXPECT_TRUE(at::equal(step.lookup(left, {.keys = all_padding, .padding = -1}, pooling),
                                at::zeros({2, 3})));
          const at::Tensor none = at::empty({0}, at::kLong);
          EXPECT_EQ(step.lookup(left, {.keys = none, .offsets = none}, pooling).sizes(),
                    at::IntArrayRef({0, 3}));
          EXPECT_EQ(step.lookup(left, {.keys = at::empty({0, 4}, at::kInt)}, pooling).sizes(),
                    at::IntArrayRef({0, 3}));
          EXPECT_TRUE(at::equal(step.lookup(left, {.keys = at::empty({2, 0}, at::kInt)}, pooling),
                                at::zeros({2, 3})));
        }
      }).ok());
}

TEST_F(OneStep, AMeanDividesByTheWeights) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  ASSERT_TRUE(Run([&](Step& step, const data::Batch&) {
                const EmbeddingHandle left = program_->embeddings["left"];
                const at::Tensor rows = step.lookup(left, at::tensor({1, 2}));
                const at::Tensor weights =
                    at::tensor({1.f, 3.f, 1.f, -1.f}).reshape({2, 2}).requires_grad_();
                const at::Tensor mean = step.lookup(
                    left, {.keys = at::tensor({1, 2, 1, 2}).reshape({2, 2}), .weights = weights},
                    Pooling::kMean);
                EXPECT_TRUE(at::allclose(mean[0], (rows[0] + 3 * rows[1]) / 4));
                EXPECT_TRUE(at::equal(mean[1], at::zeros({3}))) << "weights that add up to 0";
                mean.sum().backward();
                const at::Tensor gradient = (rows[0] - mean[0]).sum() / 4;
                EXPECT_NEAR(weights.grad()[0][0].item<float>(), gradient.item<float>(), 1e-6);
                EXPECT_TRUE(at::equal(weights.grad()[1], at::zeros({2})));
              }).ok());
}

TEST_F(OneStep, SeveralTablesAtOnceAreAsOneByOne) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  std::vector<at::Tensor> rows, again;
  const EmbeddingHandle left = program_->embeddings["left"], right = program_->embeddings["right"];
  const std::vector<TableKeys> keys = {{left, at::tensor({5, 6})},
                                       {right, at::tensor({5, 7, 5})},
                                       {left, at::tensor({6, 8}).reshape({1, 2})}};
  ASSERT_TRUE(Run([&](Step& step, const data::Batch&) {
                rows = step.lookup(keys);
                for (const TableKeys& of : keys) again.push_back(step.lookup(of.table, of.keys));
                step.minimize(program_->optimizers["sgd"],
                              (rows[0].sum() + rows[1].sum() + rows[2].sum()).expand({4}) +
                                  (*program_->model)["b"]);
              }).ok());
  ASSERT_EQ(rows.size(), 3u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(at::equal(rows[i], again[i])) << i;
  EXPECT_EQ(rows[2].sizes(), at::IntArrayRef({1, 2, 3}));
  const auto moved = [&](int table, uint64_t key, const at::Tensor& before) {
    return before[0].item<float>() - Row(table, key)[0];
  };
  EXPECT_NEAR(moved(0, 5, rows[0][0]), 0.1f, 1e-6);
  EXPECT_NEAR(moved(0, 6, rows[0][1]), 0.2f, 1e-6) << "of both lookups";
  EXPECT_NEAR(moved(1, 5, rows[1][0]), 0.2f, 1e-6);
}

TEST_F(OneStep, RefusesBagsThatAreNone) {
  Make([](TestProgram& p) { Summed(p, Small()); });
  const auto look_up = [&](Bags bags) {
    return std::string(Message(Run([&](Step& step, const data::Batch&) {
      step.lookup(program_->embeddings["left"], bags, Pooling::kSum);
    })));
  };
  const at::Tensor keys = at::arange(5);
  const auto at_offsets = [&](at::Tensor offsets) {
    return look_up({.keys = keys, .offsets = std::move(offsets)});
  };
  EXPECT_THAT(look_up({}), HasSubstr("lookup(\"left\") needs integer keys, and got an undefined"));
  EXPECT_THAT(look_up({.keys = at::ones({2, 2})}), HasSubstr("needs integer keys, and got Float"));
  EXPECT_THAT(look_up({.keys = keys}),
              HasSubstr("lookup(\"left\") needs keys [bags, length], or keys [n] with offsets, and "
                        "got keys [5] without offsets"));
  EXPECT_THAT(look_up({.keys = at::ones({2, 2}, at::kLong), .offsets = at::tensor({0, 2})}),
              HasSubstr("needs keys [n] where there are offsets, and got [2, 2]"));
  EXPECT_THAT(at_offsets(at::tensor({0.f, 2.f})),
              HasSubstr("needs integer offsets [bags], and got Float [2]"));
  EXPECT_THAT(at_offsets(at::empty({0}, at::kLong)),
              HasSubstr("got 5 keys and no offsets: no bag has them"));
  EXPECT_THAT(at_offsets(at::tensor({1, 2})), HasSubstr("offsets must begin with 0, where the "
                                                        "first bag does, and begin with 1"));
  EXPECT_THAT(at_offsets(at::tensor({0, 3, 2})),
              HasSubstr("offsets must not descend, and bag 2 begins at 2, the one before at 3"));
  EXPECT_THAT(at_offsets(at::tensor({0, 6})), HasSubstr("offset 6 of bag 1 is beyond the 5 keys"));
  const at::Tensor square = keys.slice(0, 0, 4).reshape({2, 2});
  EXPECT_THAT(look_up({.keys = square, .weights = at::ones({4})}),
              HasSubstr("needs a weight for each key, [2, 2], and got weights [4]"));
  EXPECT_THAT(look_up({.keys = square, .weights = at::ones({2, 2}, at::kLong)}),
              HasSubstr("needs floating-point weights, and got Long"));
}

TEST_F(OneStep, TheJobReplacesATablesOptimizerByItsName) {
  job_.optimizer = {{"left", {{"name", "ftrl"}, {"l1", 0.5}}}};
  job_.learning_rate = {{"right", 0.75}};
  Make([](TestProgram& p) { Summed(p, Small()); });
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(std::get<FtrlSpec>(replica_->embeddings()[0].options.rule).l1, 0.5);
  EXPECT_EQ(replica_->embeddings()[1].options.rule.index(), RuleSpec(AdagradSpec()).index());
  EXPECT_EQ(replica_->embeddings()[0].schedule->At(0), 0.1);
  EXPECT_EQ(replica_->embeddings()[1].schedule->At(0), 0.75);
  EXPECT_NE(replica_->embeddings()[0].options.seed, replica_->embeddings()[1].options.seed);
}

TEST_F(OneStep, TheJobReplacesATablesLimitsAndTypes) {
  job_.embeddings = {{"*", {{"max_rows", 100}, {"eviction", "oldest"}}},
                     {"left", {{"max_rows", 7}, {"dtype", "bfloat16"}, {"initializer", "zeros"}}}};
  Make([](TestProgram& p) { Summed(p, Small()); });
  ASSERT_TRUE(status_.ok()) << status_;
  const push_pull::EmbeddingTable::Options& left = replica_->embeddings()[0].options;
  const push_pull::EmbeddingTable::Options& right = replica_->embeddings()[1].options;
  EXPECT_EQ(left.limits.max_rows, 7);
  EXPECT_EQ(right.limits.max_rows, 100);
  EXPECT_EQ(left.limits.eviction, push_pull::Eviction::kOldest);
  EXPECT_EQ(left.type, push_pull::RowType::kBFloat16);
  EXPECT_EQ(right.type, push_pull::RowType::kFloat32);
  EXPECT_EQ(left.initializer.kind, push_pull::Initializer::Kind::kZeros);
  const auto refusal = [&](Json embeddings) {
    job_.embeddings = std::move(embeddings);
    Make([](TestProgram& p) { Summed(p, Small()); });
    EXPECT_EQ(ExitCodeOf(status_), ExitCode::kConfiguration);
    return std::string(Message(status_));
  };
  EXPECT_THAT(refusal({{"lefd", {{"max_rows", 7}}}}),
              HasSubstr("embeddings.lefd names no embedding table of this program, did you mean "
                        "\"left\"?"));
  EXPECT_THAT(refusal({{"left", {{"max_row", 7}}}}), HasSubstr("did you mean \"max_rows\""));
  EXPECT_THAT(refusal({{"left", 7}}), HasSubstr("embeddings.left must be an object"));
}

TEST_F(OneStep, BadDeclarationsAreRefused) {
  const auto refusal = [&](EmbeddingOptions options, const std::string& name = "third") {
    Make([&](TestProgram& p) {
      Summed(p, Small());
      const auto build = p.on_build;
      p.on_build = [=](TestProgram& self, Builder& builder) {
        build(self, builder);
        builder.embedding(name, options);
      };
    });
    return std::string(Message(status_));
  };
  EXPECT_THAT(refusal(Small(), "left"), HasSubstr("two embeddings are named \"left\""));
  EXPECT_THAT(refusal(Small(), "sgd"), HasSubstr("an optimizer and an embedding are named"));
  EXPECT_THAT(refusal(Small(), "net"), HasSubstr("a model and an embedding are named"));
  EmbeddingOptions options = Small();
  options.width = 0;
  EXPECT_THAT(refusal(options), HasSubstr("must be above 0, is 0"));
  options = Small();
  options.initializer = "ones";
  EXPECT_THAT(refusal(options), HasSubstr("initializer.name"));
  EXPECT_THAT(refusal(Small({{"name", "adam"}, {"global_clipnorm", 1.0}})),
              HasSubstr("the optimizer of embedding \"third\" has global_clipnorm"));
  options = Small();
  options.dtype = "bfloat61";
  EXPECT_THAT(
      refusal(options),
      HasSubstr("dtype of embedding \"third\" must be one of float32, float16, bfloat16, is "
                "\"bfloat61\", did you mean \"bfloat16\"?"));
  options = Small();
  options.eviction = "random";
  EXPECT_THAT(refusal(options), HasSubstr("eviction of embedding \"third\" must be one of"));
  options = Small();
  options.max_rows = -1;
  EXPECT_THAT(refusal(options), HasSubstr("max_rows of embedding \"third\" must be at least 0"));
  options = Small();
  options.admit_after = 0;
  EXPECT_THAT(refusal(options), HasSubstr("must be at least 1, is 0"));
  job_.optimizer = {{"sgd", "rowwise_adagrad"}};
  EXPECT_THAT(refusal(Small()), HasSubstr("which is for embedding tables alone"));
  job_.optimizer = nullptr;
  job_.learning_rate = {{"lefd", 0.75}};
  EXPECT_THAT(refusal(Small()), HasSubstr("did you mean \"left\""));
}

}  // namespace
}  // namespace muster
