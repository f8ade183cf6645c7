// Parameters that a program freezes and unfreezes while it trains, and those that it registers
// late.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::RunOptions;
using testing::RunResult;
using testing::TestProgram;

at::Tensor Inputs() { return at::arange(24, at::kFloat).reshape({12, 2}) / 24; }

struct Plan {
  int64_t unfreeze_at = 0, freeze_at = 0;  // steps; 0: never
  bool frozen = true;                      // "base" in build()
  int64_t only_replica = -1;               // whose program alone does so
};

// "base" and "head" of one optimizer, adam; "base" is frozen or not as the plan says.
std::function<void(TestProgram&)> Program(Plan plan) {
  return [plan](TestProgram& p) {
    p.on_build = [plan](TestProgram& self, Builder& builder) {
      self.model->parameter("base", at::full({2}, 0.5)).set_requires_grad(!plan.frozen);
      self.model->parameter("head", at::ones({2}));
      builder.model("net", self.model);
      self.optimizers["adam"] = builder.optimizer("adam", {"net"}, "adam", 0.05);
      builder.dataset(Split::kTrain, testing::Tensors2(Inputs(), Inputs().sum(1)));
    };
    p.on_step = [plan](TestProgram& self, Step& step, const data::Batch& batch) {
      at::Tensor base = (*self.model)["base"];
      const bool here = plan.only_replica < 0 || plan.only_replica == step.replica();
      if (here && step.number() == plan.unfreeze_at) base.set_requires_grad(true);
      if (here && step.number() == plan.freeze_at) base.set_requires_grad(false);
      const at::Tensor prediction = at::matmul(batch[0] * base, (*self.model)["head"]);
      step.minimize(self.optimizers["adam"], (prediction - batch[1]).square());
    };
  };
}

RunOptions Options(int replicas, int64_t steps) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = steps;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  return options;
}

RunResult Train(Plan plan, int replicas, int64_t steps) {
  return testing::Run(Options(replicas, steps), Program(plan));
}

void ExpectSame(const RunResult& a, const RunResult& b, double tolerance) {
  ASSERT_TRUE(a.status.ok()) << a.status;
  ASSERT_TRUE(b.status.ok()) << b.status;
  for (const auto& [name, value] : a.replicas[0])
    EXPECT_TRUE(at::allclose(value, b.replicas[0].at(name), tolerance, tolerance)) << name;
}

TEST(Freezing, WhatIsUnfrozenTrainsFromThatStepOn) {
  const RunResult before = Train({4}, 1, 3), at_once = Train({4}, 1, 4), later = Train({4}, 1, 6);
  ASSERT_TRUE(later.status.ok()) << later.status;
  EXPECT_TRUE(at::equal(before.replicas[0].at("base"), at::full({2}, 0.5)));
  // The first update of adam is the rate in each element.
  EXPECT_TRUE(
      at::allclose((at_once.replicas[0].at("base") - 0.5).abs(), at::full({2}, 0.05), 1e-3, 1e-5));
  EXPECT_FALSE(at::equal(at_once.replicas[0].at("base"), later.replicas[0].at("base")));
  for (const int replicas : {2, 3}) ExpectSame(Train({4}, replicas, 6), later, 1e-6);
}

TEST(Freezing, WhatIsFrozenStaysWithItsSlots) {
  Plan plan;
  plan.frozen = false;
  plan.freeze_at = 3;
  const RunResult frozen = Train(plan, 2, 5), two = Train(plan, 2, 2);
  ASSERT_TRUE(frozen.status.ok()) << frozen.status;
  EXPECT_TRUE(at::equal(frozen.replicas[0].at("base"), two.replicas[0].at("base")));
  plan.unfreeze_at = 5;
  for (const int replicas : {2, 3}) ExpectSame(Train(plan, replicas, 8), Train(plan, 1, 8), 1e-6);
}

TEST(Freezing, CentralStorageDoesTheSame) {
  for (const int replicas : {1, 3}) {
    RunOptions options = Options(replicas, 6);
    options.job.strategy = StrategyKind::kCentralStorage;
    const RunResult central = testing::Run(options, Program({4}));
    ExpectSame(central, Train({4}, replicas, 6), 0);
  }
}

TEST(Freezing, ResumesExactlyBeforeAndAfter) {
  Plan plan{3, 6};
  for (const int replicas : {1, 2}) {
    KeptCheckpoints kept;
    kept.wanted = [](const SaveMoment&) { return true; };
    RunOptions options = Options(replicas, 8);
    options.checkpoints = &kept;
    const RunResult whole = testing::Run(options, Program(plan));
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    ASSERT_EQ(kept.kept.size(), 8u);
    EXPECT_EQ(kept.kept[1].optimizer.Find("adam.base.exp_avg"), nullptr);
    EXPECT_NE(kept.kept[2].optimizer.Find("adam.base.exp_avg"), nullptr);
    EXPECT_NE(kept.kept[7].optimizer.Find("adam.base.exp_avg"), nullptr) << "frozen again";
    EXPECT_FALSE(kept.kept[1].state.frozen.has_value()) << "as build() left it";
    EXPECT_TRUE(kept.kept[3].state.frozen->empty());
    for (const size_t cut : {0u, 1u, 2u, 4u, 5u, 6u}) {
      RunOptions rest = Options(replicas, 8);
      rest.restore = &kept.kept[cut];
      const RunResult resumed = testing::Run(rest, Program(plan));
      SCOPED_TRACE(cut);
      ExpectSame(resumed, whole, 0);
    }
  }
}

TEST(Freezing, ReplicasThatDifferAreToldOfTheParameter) {
  Plan plan{2};
  plan.only_replica = 1;
  const RunResult run = Train(plan, 2, 3);
  EXPECT_NE(ExitCodeOf(run.status), ExitCode::kDone);
  EXPECT_NE(ExitCodeOf(run.status), ExitCode::kRetryable) << run.status;
}

TEST(Freezing, AnOptimizerWithNothingToTrainDoesNothing) {
  const auto run = testing::Run(Options(2, 3), [](TestProgram& p) {
    Plan plan;
    plan.frozen = false;
    Program(plan)(p);
    const auto step = p.on_step;
    p.on_step = [step](TestProgram& self, Step& of, const data::Batch& batch) {
      for (const char* name : {"base", "head"})
        (*self.model)[name].set_requires_grad(of.number() != 2);
      step(self, of, batch);
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.recorder.steps.size(), 3u);
}

// ---- Late

TEST(Late, WhatBuildRegistersAfterTheModelIsTrainedAndSaved) {
  KeptCheckpoints kept;
  RunOptions options = Options(2, 2);
  options.checkpoints = &kept;
  const auto run = testing::Run(options, [](TestProgram& p) {
    Program({})(p);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      build(self, builder);
      self.model->parameter("late", at::zeros({2}));
    };
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor prediction = at::matmul(batch[0], (*self.model)["late"]);
      step.minimize(self.optimizers["adam"], (prediction - batch[1]).square());
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_GT(run.replicas[1].at("late").abs().sum().item<float>(), 0.f);
  EXPECT_NE(kept.kept.back().model.Find("late"), nullptr);
  EXPECT_NE(kept.kept.back().optimizer.Find("adam.late.exp_avg"), nullptr);
}

TEST(Late, WhatAStepRegistersIsNamed) {
  for (const bool buffer : {false, true}) {
    const auto run = testing::Run(Options(1, 3), [=](TestProgram& p) {
      Program({})(p);
      const auto step = p.on_step;
      p.on_step = [=](TestProgram& self, Step& of, const data::Batch& batch) {
        if (of.number() == 2) {
          if (buffer) {
            self.model->buffer("late", at::zeros({2}));
          } else {
            self.model->parameter("late", at::zeros({2}));
          }
        }
        step(self, of, batch);
      };
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    EXPECT_THAT(std::string(Message(run.status)),
                HasSubstr(buffer ? "buffer \"net.late\" was registered or replaced after build()"
                                 : "parameter \"net.late\" was registered or replaced after"));
  }
}

// ---- Parameter servers

class NoSink : public GradientSink {
 public:
  void Begin(const Reduction&) override {}
  void BeginBackward(bool, bool) override {}
  void OnGradient(int) override {}
  void EndBackward() override {}
  void Scale(double) override {}
  void LaunchAll(const at::Tensor&) override {}
  absl::Status Finish(at::Tensor*) override { return absl::OkStatus(); }
  const std::vector<at::Tensor>& gradients() const override { return none_; }
  bool used(int) const override { return false; }
  double norm() const override { return 0; }
  void Cancel() override {}
  int64_t control_capacity() const override { return 0; }

 private:
  std::vector<at::Tensor> none_;
};

TEST(Freezing, ServersRefuseByNameWhatTheyKeepNoSlotsFor) {
  const Job job = Options(1, 1).job;
  TestProgram* program = nullptr;
  auto replica = Replica::Make(
      job,
      [&] {
        auto made = std::make_unique<TestProgram>();
        Program({})(*made);
        program = made.get();
        return made;
      },
      c10::Device(at::kCPU));
  ASSERT_TRUE(replica.ok()) << replica.status();
  std::vector<std::unique_ptr<GradientSink>> sinks;
  sinks.push_back(std::make_unique<NoSink>());
  ASSERT_TRUE((*replica)->Attach(std::move(sinks), {}).ok());
  EXPECT_TRUE((*replica)->FollowProgram(0).ok());
  (*program->model)["head"].set_requires_grad(false);
  EXPECT_TRUE((*replica)->FollowProgram(0).ok()) << "freezing is fine";
  (*program->model)["base"].set_requires_grad(true);
  EXPECT_THAT(std::string(Message((*replica)->FollowProgram(0))),
              ::testing::AllOf(
                  HasSubstr("\"net.base\" did not require a gradient after build() and does now"),
                  HasSubstr("freeze it in every step before it is to train")));
}

}  // namespace
}  // namespace muster
