// Metrics of whole epochs and passes: the same on any number of replicas, whose slices are short or
// empty; and what they show.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using testing::LeastSquares;
using testing::RunOptions;
using testing::TestProgram;

struct Data {
  at::Tensor x, y;
};
Data MakeData() {
  at::manual_seed(3);
  const at::Tensor x = at::randn({13, 2});
  return {x, at::matmul(x, at::tensor({1.f, -2.f})) + 0.5f};
}

RunOptions PassRunOptions(int replicas) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 5;
  options.job.epochs = 1;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  return options;
}

// 13 examples in batches of 5: precision, area, matrix, with weights.
void FillClasses(TestProgram& p, const Data& data) {
  LeastSquares(p, data.x, data.y);
  const auto build = p.on_build;
  const auto step = p.on_step;
  p.on_build = [=](TestProgram& self, Builder& builder) {
    build(self, builder);
    builder.dataset(Split::kValidation, testing::Tensors2(data.x, data.y));
    self.metrics["precision"] = builder.metric("precision", MakePrecision({.threshold = 0}));
    self.metrics["auc"] = builder.metric("auc", MakeAuc({.from_logits = true}));
    self.metrics["matrix"] = builder.metric("matrix", MakeConfusionMatrix(2));
  };
  const auto count = [](TestProgram& self, auto& to, const data::Batch& batch) {
    const at::Tensor score = batch[0].select(1, 0), positive = batch[1].gt(0).to(at::kLong);
    const at::Tensor weights = batch[0].select(1, 1).abs();
    to.update(self.metrics["precision"], score, positive, weights);
    to.update(self.metrics["auc"], score, positive, weights);
    to.update(self.metrics["matrix"], batch[0], positive, weights);
  };
  p.on_step = [=](TestProgram& self, Step& s, const data::Batch& batch) {
    step(self, s, batch);
    count(self, s, batch);
  };
  p.on_eval = [=](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss(batch[1].mul(0));
    count(self, evaluation, batch);
  };
}

TEST(Decisions, AreTheSameOnAnyNumberOfReplicasAndAMatrixIsShown) {
  const Data data = MakeData();
  const auto one = testing::Run(PassRunOptions(1), [&](TestProgram& p) { FillClasses(p, data); });
  ASSERT_TRUE(one.status.ok()) << one.status;
  EXPECT_GT(one.recorder.Find("validation", 0)->metrics.at("auc"), 0);
  for (const int replicas : {1, 2, 3, 6}) {
    const auto run =
        testing::Run(PassRunOptions(replicas), [&](TestProgram& p) { FillClasses(p, data); });
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (const char* split : {"train", "validation"}) {
      const auto& want = one.recorder.Find(split, 0)->metrics;
      const auto& got = run.recorder.Find(split, 0)->metrics;
      for (const char* name : {"precision", "auc", "matrix"})
        EXPECT_NEAR(got.at(name), want.at(name), 1e-6) << split << " " << name << " " << replicas;
    }
    std::vector<std::string> shown;
    for (const auto& [split, image] : run.recorder.images) {
      shown.push_back(split + "/" + image.tag);
      EXPECT_EQ(image.step, 3);
      EXPECT_EQ(image.channels, 3);
      EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.height) * image.width * 3);
    }
    EXPECT_THAT(shown, ElementsAre("train/matrix", "validation/matrix"));
  }
}

// A chief that comes back after the last step evaluates alone, on a device that holds its share.
TEST(Decisions, AreTheSameInPassesByFewerMembersWhichTakeNoMoreAtOnceThanTraining) {
  const Data data = MakeData();
  const auto run = [&data](int declared, int64_t* most) {
    RunOptions options = PassRunOptions(1);
    options.declared_members = declared;
    return testing::Run(std::move(options), [&data, most](TestProgram& p) {
      FillClasses(p, data);
      p.on_eval = [eval = p.on_eval, most](TestProgram& self, Evaluation& evaluation,
                                           const data::Batch& batch) {
        *most = std::max(*most, batch[0].size(0));
        eval(self, evaluation, batch);
      };
    });
  };
  int64_t together = 0, alone = 0;
  const auto one = run(1, &together), of_four = run(4, &alone);
  ASSERT_TRUE(one.status.ok()) << one.status;
  ASSERT_TRUE(of_four.status.ok()) << of_four.status;
  EXPECT_EQ(together, 5);
  EXPECT_EQ(alone, 2);
  const auto& got = of_four.recorder.Find("validation", 0)->metrics;
  for (const auto& [name, want] : one.recorder.Find("validation", 0)->metrics)
    EXPECT_NEAR(got.at(name), want, 1e-6) << name;
  EXPECT_EQ(of_four.recorder.losses(), one.recorder.losses()) << "training is as it was";
}

}  // namespace
}  // namespace muster
