// "deterministic": the same bits from run to run, or a refusal.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::RunResult;
using testing::SquaredError;
using testing::TestProgram;

class Deterministic : public ::testing::Test {
 protected:
  // It is a setting of the process.
  ~Deterministic() override {
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setDeterministicCuDNN(false);
  }

  static RunResult Train(int replicas, bool deterministic, std::function<void(TestProgram&)> fill) {
    Job job;
    job.program = "test";
    job.global_batch_size = 5;
    job.epochs = 4;
    job.deterministic = deterministic;
    return testing::RunLocally(job, replicas, std::move(fill));
  }
  static void Fill(TestProgram& p) {
    at::manual_seed(5);
    const at::Tensor x = at::randn({23, 64}), y = at::randn({23});
    LeastSquares(p, x, y);
  }
  static void WithStep(TestProgram& p, std::function<at::Tensor(Step&, at::Tensor)> change) {
    Fill(p);
    p.on_step = [change](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"], change(step, SquaredError(self, batch)));
    };
  }
};

TEST_F(Deterministic, TwoRunsAreBitEqual) {
  for (const int replicas : {1, 2}) {
    const auto noisy = [](TestProgram& p) {
      WithStep(p, [](Step& step, at::Tensor loss) {
        return loss * at::rand(loss.sizes(), step.generator());
      });
    };
    const RunResult first = Train(replicas, true, noisy), second = Train(replicas, true, noisy);
    ASSERT_TRUE(first.status.ok()) << first.status;
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    EXPECT_EQ(first.recorder.losses(), second.recorder.losses());
    for (int r = 0; r < replicas; ++r) {
      for (const auto& [name, value] : first.replicas[r])
        EXPECT_TRUE(at::equal(value, second.replicas[r].at(name))) << name;
    }
  }
}

TEST_F(Deterministic, AnOperatorThatCannotIsRefusedByName) {
  const auto fill = [](TestProgram& p) {
    WithStep(p, [](Step&, at::Tensor loss) {
      at::Tensor put = at::zeros({4});
      put.put_(at::zeros({2}, at::kLong), at::ones({2}));
      return loss + put[0];
    });
  };
  EXPECT_TRUE(Train(1, false, fill).status.ok());
  const RunResult run = Train(1, true, fill);
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_EQ(
      Message(run.status),
      "train_step failed: deterministic is true, and put_ has no deterministic "
      "implementation on this device: take another operator, or set \"deterministic\": false");
}

TEST_F(Deterministic, TheGeneratorThatReplicasShareIsRefused) {
  const auto fill = [](TestProgram& p) {
    WithStep(p, [](Step&, at::Tensor loss) { return loss * at::rand(loss.sizes()); });
  };
  EXPECT_TRUE(Train(1, true, fill).status.ok()) << "alone it is seeded before each step";
  EXPECT_TRUE(Train(2, false, fill).status.ok());
  const RunResult run = Train(2, true, fill);
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("draw from step.generator()"));
}

}  // namespace
}  // namespace muster
