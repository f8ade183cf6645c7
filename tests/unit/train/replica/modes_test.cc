// A module's mode is the program's: passes give it back as it was.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using testing::LeastSquares;
using testing::RunLocally;
using testing::SquaredError;
using testing::TestProgram;

struct Modes {
  bool model, frozen, inner;
  friend bool operator==(const Modes&, const Modes&) = default;
};
std::ostream& operator<<(std::ostream& out, const Modes& modes) {
  return out << modes.model << modes.frozen << modes.inner;
}

// Two epochs of two steps each, with validation; a child of the model and one of a second model
// that has the first as a part.
void Fill(TestProgram& p, std::vector<Modes>* training, std::vector<Modes>* evaluating) {
  LeastSquares(p, at::ones({8, 2}), at::ones({8}));
  const auto build = p.on_build;
  p.second = std::make_shared<testing::Tensors>();
  const auto frozen = std::make_shared<testing::Tensors>();
  const auto inner = std::make_shared<testing::Tensors>();
  p.on_build = [=](TestProgram& self, Builder& builder) {
    frozen->register_module("inner", inner);
    self.model->register_module("frozen", frozen);
    self.second->register_module("shared", frozen);
    self.second->parameter("unused", at::zeros({1}));
    frozen->eval();
    inner->train();
    build(self, builder);
    builder.model("second", self.second);
    builder.dataset(Split::kValidation, testing::Tensors2(at::ones({4, 2}), at::ones({4})));
  };
  const auto now = [=](TestProgram& self) {
    return Modes{self.model->is_training(), frozen->is_training(), inner->is_training()};
  };
  p.on_step = [=](TestProgram& self, Step& step, const data::Batch& batch) {
    training->push_back(now(self));
    step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
  };
  p.on_eval = [=](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluating->push_back(now(self));
    self.model->train();  // a program may do so; the end of the pass undoes it
    evaluation.loss(SquaredError(self, batch));
  };
}

TEST(Modes, APassGivesEveryModuleItsModeBack) {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  job.epochs = 2;
  std::vector<Modes> training, evaluating;
  const auto run = RunLocally(job, 1, [&](TestProgram& p) { Fill(p, &training, &evaluating); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(training, std::vector<Modes>(4, Modes{true, false, true}))
      << "what the program put into evaluation mode stays in it";
  EXPECT_EQ(evaluating, std::vector<Modes>(2, Modes{false, false, false}));
}

}  // namespace
}  // namespace muster
