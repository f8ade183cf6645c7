// Batch normalisation where a slice has one example: found in the first step, not at an epoch's
// end.
#include "common/train/step/single_example.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::RunResult;
using testing::TestProgram;

// LibTorch's own functional form checks the size before the operator; this does as it does.
at::Tensor Normalised(const at::Tensor& input, testing::Tensors& model) {
  int64_t values = input.size(0);
  for (int64_t d = 2; d < input.dim(); ++d) values *= input.size(d);
  TORCH_CHECK(values != 1, "Expected more than 1 value per channel when training, got input size ",
              input.sizes());
  return at::batch_norm(input, {}, {}, model["mean"], model["var"], /*training=*/true, 0.1, 1e-5,
                        false);
}

// `examples` of the given shape in batches of `batch`; `views` of each are normalised together.
RunResult Train(int replicas, int64_t examples, int64_t batch, std::vector<int64_t> shape,
                std::function<void(Job&)> change = {}, int64_t views = 1) {
  Job job;
  job.program = "test";
  job.global_batch_size = batch;
  job.epochs = 2;
  if (change) change(job);
  return testing::RunLocally(job, replicas, [=](TestProgram& p) {
    at::manual_seed(3);
    std::vector<int64_t> all = shape;
    all.insert(all.begin(), examples);
    const at::Tensor x = at::randn(all), y = at::randn({examples});
    p.on_build = [=](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::ones({shape[0]}));
      self.model->buffer("mean", at::zeros({shape[0]}));
      self.model->buffer("var", at::ones({shape[0]}));
      builder.model("net", self.model);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
      builder.dataset(Split::kTrain, testing::Tensors2(x, y));
    };
    p.on_step = [views](TestProgram& self, Step& step, const data::Batch& part) {
      const at::Tensor all = at::cat(std::vector<at::Tensor>(views, part[0]));
      const at::Tensor normal = Normalised(all, *self.model).narrow(0, 0, part[0].size(0));
      const at::Tensor flat = normal.dim() > 2 ? normal.flatten(2).mean(2) : normal;
      step.minimize(self.optimizers["sgd"],
                    (at::matmul(flat, (*self.model)["w"]) - part[1]).square());
    };
  });
}

TEST(SingleExample, IsRefusedInTheFirstStepWhateverTheNumberOfReplicas) {
  const RunResult alone = Train(1, 9, 4, {3});
  EXPECT_EQ(ExitCodeOf(alone.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(alone.status)),
              HasSubstr("the last batch of an epoch, 1 example for 1 replica, leaves a replica a "
                        "single example"));
  EXPECT_TRUE(alone.recorder.steps.empty());
  const RunResult three = Train(3, 13, 8, {3});
  EXPECT_EQ(ExitCodeOf(three.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(three.status)),
              HasSubstr("the last batch of an epoch, 5 examples for 3 replicas"));
}

TEST(SingleExample, IsFineWhereItDoesNotComeOrHasStatistics) {
  EXPECT_TRUE(Train(1, 10, 4, {3}).status.ok());
  EXPECT_TRUE(Train(1, 9, 4, {3}, [](Job& job) { job.drop_remainder = true; }).status.ok());
  EXPECT_TRUE(Train(1, 9, 4, {3},
                    [](Job& job) {
                      job.epochs.reset();
                      job.max_steps = 2;
                    })
                  .status.ok())
      << "the short batch is never reached";
  EXPECT_TRUE(Train(2, 9, 4, {3, 5}).status.ok()) << "several values per channel";
  for (const int64_t views : {2, 5}) {
    const RunResult run = Train(1, 9, 4, {3}, {}, views);
    EXPECT_TRUE(run.status.ok()) << "several rows for each example: " << run.status;
  }
}

TEST(SingleExample, LibTorchsOwnErrorNamesTheMend) {
  const RunResult run = Train(4, 8, 4, {3});
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("a replica's part of the batch has a single example, of which batch "
                        "normalisation has no statistics: set \"drop_remainder\": true"));
}

TEST(SingleExample, IsSeenByAllWatchesOfTheThread) {
  const BatchNormWatch outer;
  EXPECT_TRUE(Train(1, 10, 4, {3}).status.ok());  // with a watch of its own, in this thread
  EXPECT_TRUE(outer.needs_several_examples());
  const BatchNormWatch inner;
  EXPECT_FALSE(inner.needs_several_examples());
}

TEST(SingleExample, CountsMicroBatches) {
  const data::Sampler sampler(100, 12, /*drop_remainder=*/true);
  EXPECT_EQ(BatchWithSingleExample(sampler, 8, 2, 3), "");
  EXPECT_EQ(BatchWithSingleExample(sampler, 8, 2, 4),
            "a batch, 12 examples for 2 replicas in 4 micro-batches");
}

}  // namespace
}  // namespace muster
