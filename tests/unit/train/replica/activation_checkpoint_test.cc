#include "muster/activation_checkpoint.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>

#include "muster/sync_batch_norm.h"
#include "tests/unit/train/step/steps_job.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::RunLocally;
using testing::RunResult;
using testing::StepsJob;
using testing::Tensors2;
using testing::TestProgram;

constexpr int64_t kWidth = 4;

void Build(TestProgram& self, Builder& builder) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({12, kWidth}), y = at::randn({12});
  for (const char* name : {"a", "b", "c"}) self.model->parameter(name, at::randn({kWidth, kWidth}));
  self.model->parameter("out", at::randn({kWidth}));
  SyncBatchNorm norm{SyncBatchNormOptions(kWidth)};
  self.model->register_module("norm", norm.ptr());
  builder.model("net", self.model);
  // Not Adam, which makes a difference of rounding where a gradient is near zero.
  self.optimizers["net"] = builder.optimizer("net", {"net"}, "sgd", 0.1);
  builder.dataset(Split::kTrain, Tensors2(x, y));
}

// A layer with dropout and batch norm.
at::Tensor Layer(TestProgram& self, Step& step, const std::string& name, const at::Tensor& x) {
  auto norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(self.model->children()[0]);
  const at::Tensor h = at::matmul(x, (*self.model)[name]).tanh();
  const at::Tensor kept = at::rand(h.sizes(), step.generator()).gt(0.3);
  return norm->forward(h * kept / 0.7);
}

class Checkpoint : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Checkpoint, ::testing::Values(1, 2, 3));

TEST_P(Checkpoint, TrainsAsWithoutIt) {
  const auto run = [&](bool checkpoint, Precision precision, int64_t accumulate) {
    Job job = StepsJob(6, 5);
    job.precision = precision;
    job.accumulate_steps = accumulate;
    return RunLocally(job, GetParam(), [&, checkpoint](TestProgram& p) {
      p.on_build = Build;
      p.on_step = [checkpoint](TestProgram& self, Step& step, const data::Batch& batch) {
        at::Tensor h = batch[0];
        for (const std::string name : {"a", "b", "c"}) {
          const auto layer = [&self, &step, name](const at::Tensor& x) {
            return Layer(self, step, name, x);
          };
          h = checkpoint ? activation_checkpoint(layer, h) : layer(h);
        }
        const at::Tensor out = at::matmul(h, (*self.model)["out"]);
        step.minimize(self.optimizers["net"], (out - batch[1]).square());
      };
    });
  };
  for (const Precision precision : {Precision::kFloat32, Precision::kBFloat16}) {
    for (const int64_t accumulate : {1, 2}) {
      const RunResult with = run(true, precision, accumulate);
      const RunResult without = run(false, precision, accumulate);
      ASSERT_TRUE(with.status.ok()) << with.status;
      ASSERT_TRUE(without.status.ok()) << without.status;
      for (const auto& [name, value] : without.replicas[0])
        EXPECT_TRUE(at::allclose(with.replicas[0].at(name), value, 1e-5, 1e-6)) << name;
    }
  }
}

TEST_P(Checkpoint, OfSeveralInputsAndNestedInSeveralLosses) {
  const auto run = [&](bool checkpoint) {
    return RunLocally(StepsJob(6, 3), GetParam(), [&, checkpoint](TestProgram& p) {
      p.on_build = [](TestProgram& self, Builder& builder) {
        Build(self, builder);
        self.second = std::make_shared<testing::Tensors>();
        self.second->parameter("d", at::ones({kWidth}));
        builder.model("second", self.second);
        self.model->register_module("second", self.second);
        self.optimizers["sgd"] = builder.optimizer("sgd", {"second"}, "sgd", 0.1);
      };
      p.on_step = [checkpoint](TestProgram& self, Step& step, const data::Batch& batch) {
        const auto all = [&self](const at::Tensor& x, const at::Tensor& d) {
          return (at::matmul(x, (*self.model)["a"]) * d).tanh();
        };
        const auto nested = [&self, all, checkpoint](const at::Tensor& x, const at::Tensor& d) {
          const at::Tensor h = checkpoint ? activation_checkpoint(all, x, d) : all(x, d);
          return at::matmul(h, (*self.model)["b"]);
        };
        const at::Tensor d = (*self.second)["d"] * 2;  // has a history, and is an input
        const at::Tensor h =
            checkpoint ? activation_checkpoint(nested, batch[0], d) : nested(batch[0], d);
        step.minimize({{self.optimizers["net"], (h.sum(1) - batch[1]).square()},
                       {self.optimizers["sgd"], (h.sum(1) + batch[1]).square()}});
      };
    });
  };
  const RunResult with = run(true), without = run(false);
  ASSERT_TRUE(with.status.ok()) << with.status;
  ASSERT_TRUE(without.status.ok()) << without.status;
  for (const auto& [name, value] : without.replicas[0])
    EXPECT_TRUE(at::allclose(with.replicas[0].at(name), value, 1e-5, 1e-6)) << name;
  EXPECT_FALSE(at::allclose(without.replicas[0].at("second.d"), at::ones({kWidth})));
}

TEST(CheckpointTest, WhatWouldGoWrongSilentlyIsRefused) {
  const auto error_of =
      [&](const std::function<at::Tensor(TestProgram&, Step&, const at::Tensor&)>& body) {
        const RunResult run = RunLocally(StepsJob(6, 2), 1, [&](TestProgram& p) {
          p.on_build = Build;
          p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
            const at::Tensor h = body(self, step, batch[0]);
            step.minimize(self.optimizers["net"], h.flatten(1).sum(1));
          };
        });
        EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
        return std::string(Message(run.status));
      };
  EXPECT_THAT(error_of([](TestProgram& self, Step&, const at::Tensor& x) {
                const at::Tensor before = (*self.model)["a"] * 2;
                return activation_checkpoint(
                    [before](const at::Tensor& in) { return at::matmul(in, before); }, x);
              }),
              HasSubstr("uses a tensor that was computed before (by MulBackward"));
  EXPECT_THAT(error_of([](TestProgram& self, Step& step, const at::Tensor& x) {
                return activation_checkpoint(
                    [&](const at::Tensor& in) {
                      step.report("x", in.sum(1).detach());
                      return at::matmul(in, (*self.model)["a"]);
                    },
                    x);
              }),
              HasSubstr("report was called in the function of activation_checkpoint, which runs "
                        "twice"));
  auto calls = std::make_shared<int>(0);
  EXPECT_THAT(error_of([calls](TestProgram& self, Step&, const at::Tensor& x) {
                return activation_checkpoint(
                    [calls, &self](const at::Tensor& in) {
                      return at::matmul(in, (*self.model)["a"]) * ++*calls;
                    },
                    x);
              }),
              HasSubstr("gave other values when it ran again"));
}

// A function of a program's own that runs a backward pass of its own, and a second use of the same
// parameter: two gradients in one pass.
struct OwnCheckpoint : torch::autograd::Function<OwnCheckpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->save_for_backward({x, w});
    return at::matmul(x, w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    at::AutoGradMode record(true);
    const at::Tensor x = saved[0].detach().set_requires_grad(true);
    at::matmul(x, saved[1]).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

TEST_P(Checkpoint, GradientsOfABackwardPassWithinAddUp) {
  const auto run = [&](bool own) {
    return RunLocally(StepsJob(6, 3), GetParam(), [&, own](TestProgram& p) {
      p.on_build = Build;
      p.on_step = [own](TestProgram& self, Step& step, const data::Batch& batch) {
        const at::Tensor a = (*self.model)["a"];
        const at::Tensor h = at::matmul(batch[0], a).tanh();
        const at::Tensor g = own ? OwnCheckpoint::apply(h, a) : at::matmul(h, a);
        step.minimize(self.optimizers["net"], (g.sum(1) - batch[1]).square());
      };
    });
  };
  const RunResult own = run(true), plain = run(false);
  ASSERT_TRUE(own.status.ok()) << own.status;
  EXPECT_TRUE(at::allclose(own.replicas[0].at("a"), plain.replicas[0].at("a"), 1e-5, 1e-6));
}

}  // namespace
}  // namespace muster
