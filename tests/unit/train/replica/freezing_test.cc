// Parameters that a program freezes and unfreezes while it trains, and those that it registers
// late.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "common/collective/group/formation.h"
#include "common/train/state/snapshot.h"
#include "common/train/step/step.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using collective::Buffer;
using collective::Communicator;
using collective::WorkPtr;
using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::RunOptions;
using testing::RunResult;
using testing::TestProgram;

at::Tensor TwelveExamples() { return at::arange(24, at::kFloat).reshape({12, 2}) / 24; }

struct Plan {
  int64_t unfreeze_at = 0, freeze_at = 0;  // steps; 0: never
  bool frozen = true;                      // "base" in build()
  int64_t only_replica = -1;               // whose program alone does so
};

// "base" and "head" of one optimizer, adam; "base" is frozen or not as the plan says.
std::function<void(TestProgram&)> PlannedProgram(Plan plan) {
  return [plan](TestProgram& p) {
    p.on_build = [plan](TestProgram& self, Builder& builder) {
      self.model->parameter("base", at::full({2}, 0.5)).set_requires_grad(!plan.frozen);
      self.model->parameter("head", at::ones({2}));
      builder.model("net", self.model);
      self.optimizers["adam"] = builder.optimizer("adam", {"net"}, "adam", 0.05);
      builder.dataset(Split::kTrain, testing::Tensors2(TwelveExamples(), TwelveExamples().sum(1)));
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

RunOptions FreezingOptions(int replicas, int64_t steps) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.max_steps = steps;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  return options;
}

RunResult Train(Plan plan, int replicas, int64_t steps) {
  return testing::Run(FreezingOptions(replicas, steps), PlannedProgram(plan));
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
  Plan back{.unfreeze_at = 5, .freeze_at = 3, .frozen = false};
  for (const Plan& plan : {Plan{4}, back}) {
    for (const int replicas : {1, 3}) {
      for (const bool separate : {false, true}) {
        RunOptions options = FreezingOptions(replicas, 7);
        options.job.strategy = StrategyKind::kCentralStorage;
        options.separate_variables = separate;
        ExpectSame(testing::Run(options, PlannedProgram(plan)), Train(plan, replicas, 7), 0);
      }
    }
  }
}

// The checkpoints of `strategy` after each step.
std::vector<checkpoint::Snapshot> Saved(StrategyKind strategy, Plan plan, int replicas,
                                        int64_t steps) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment&) { return true; };
  RunOptions options = FreezingOptions(replicas, steps);
  options.checkpoints = &kept;
  options.job.strategy = strategy;
  options.separate_variables = true;
  const RunResult run = testing::Run(options, PlannedProgram(plan));
  EXPECT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(kept.kept.size(), static_cast<size_t>(steps));
  return std::move(kept.kept);
}

TEST(Freezing, CentralStorageHasNoSlotsForWhatWasNeverTrained) {
  const auto saved = Saved(StrategyKind::kCentralStorage, {3}, 2, 4);
  EXPECT_NE(saved[1].optimizer.Find("adam.head.exp_avg"), nullptr);
  EXPECT_EQ(saved[1].optimizer.Find("adam.base.exp_avg"), nullptr);
  EXPECT_NE(saved[2].optimizer.Find("adam.base.exp_avg"), nullptr);
  // Training continues from these checkpoints.
  for (const size_t cut : {1u, 2u}) {
    RunOptions rest = FreezingOptions(2, 6), whole = FreezingOptions(2, 6);
    rest.restore = &saved[cut];
    rest.job.strategy = whole.job.strategy = StrategyKind::kCentralStorage;
    rest.separate_variables = true;
    ExpectSame(testing::Run(rest, PlannedProgram({3})), testing::Run(whole, PlannedProgram({3})),
               0);
  }
}

TEST(Freezing, CentralStorageLeavesToTheProgramWhatIsFrozen) {
  const auto run = [](StrategyKind strategy) {
    RunOptions options = FreezingOptions(2, 6);
    options.job.strategy = strategy;
    options.separate_variables = true;
    return testing::Run(options, [](TestProgram& p) {
      PlannedProgram({.unfreeze_at = 5, .freeze_at = 2, .frozen = false})(p);
      const auto step = p.on_step;
      p.on_step = [step](TestProgram& self, Step& of, const data::Batch& batch) {
        if (of.number() == 3) (*self.model)["base"].detach().mul_(0.5);
        step(self, of, batch);
      };
    });
  };
  ExpectSame(run(StrategyKind::kCentralStorage), run(StrategyKind::kMirrored), 0);
}

// ---- From one strategy to parameter servers

absl::Status RestoreForServers(const checkpoint::Snapshot& snapshot, Plan plan) {
  Job job = FreezingOptions(1, 1).job;
  job.strategy = StrategyKind::kParameterServer;
  auto replica = Replica::Make(
      job,
      [&] {
        auto program = std::make_unique<TestProgram>();
        PlannedProgram(plan)(*program);
        return program;
      },
      c10::Device(at::kCPU));
  EXPECT_TRUE(replica.ok()) << replica.status();
  LoopState state;
  return RestoreReplica(snapshot, job, replica->get(), &state);
}

TEST(Freezing, ServersGoOnWithoutTheSlotsOfWhatBuildFreezes) {
  // Frozen for good; trained in steps 2 and 3.
  for (const StrategyKind strategy : {StrategyKind::kCentralStorage, StrategyKind::kMirrored}) {
    EXPECT_TRUE(RestoreForServers(Saved(strategy, {}, 1, 2).back(), {}).ok());
    const auto saved = Saved(strategy, {.unfreeze_at = 2, .freeze_at = 4}, 1, 4);
    EXPECT_NE(saved.back().optimizer.Find("adam.base.exp_avg"), nullptr);
    const absl::Status frozen = RestoreForServers(saved.back(), {});
    EXPECT_TRUE(frozen.ok()) << frozen;
    const absl::Status trained = RestoreForServers(saved[2], {});
    EXPECT_EQ(ExitCodeOf(trained), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(trained)),
                HasSubstr("\"net.base\" is trained in the checkpoint of step 3 and frozen by "
                          "build()"));
  }
}

TEST(Freezing, ResumesExactlyBeforeAndAfter) {
  Plan plan{3, 6};
  for (const int replicas : {1, 2}) {
    KeptCheckpoints kept;
    kept.wanted = [](const SaveMoment&) { return true; };
    RunOptions options = FreezingOptions(replicas, 8);
    options.checkpoints = &kept;
    const RunResult whole = testing::Run(options, PlannedProgram(plan));
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    ASSERT_EQ(kept.kept.size(), 8u);
    EXPECT_EQ(kept.kept[1].optimizer.Find("adam.base.exp_avg"), nullptr);
    EXPECT_NE(kept.kept[2].optimizer.Find("adam.base.exp_avg"), nullptr);
    EXPECT_NE(kept.kept[7].optimizer.Find("adam.base.exp_avg"), nullptr) << "frozen again";
    EXPECT_FALSE(kept.kept[1].state.frozen.has_value()) << "as build() left it";
    EXPECT_TRUE(kept.kept[3].state.frozen->empty());
    for (const size_t cut : {0u, 1u, 2u, 4u, 5u, 6u}) {
      RunOptions rest = FreezingOptions(replicas, 8);
      rest.restore = &kept.kept[cut];
      const RunResult resumed = testing::Run(rest, PlannedProgram(plan));
      SCOPED_TRACE(cut);
      ExpectSame(resumed, whole, 0);
    }
  }
}

TEST(Freezing, AParameterThatDiffersBetweenReplicasIsNamed) {
  for (const bool freezes : {false, true}) {
    for (const int replica : {0, 1}) {
      Plan plan{.unfreeze_at = freezes ? 0 : 2, .freeze_at = freezes ? 2 : 0, .frozen = !freezes};
      plan.only_replica = replica;
      const RunResult run = Train(plan, 2, 3);
      EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed) << run.status;
      EXPECT_THAT(
          std::string(Message(run.status)),
          HasSubstr(freezes ? "has frozen \"net.base\" in this step: every replica must"
                            : "has unfrozen \"net.base\" in this step: every replica must"));
    }
  }
}

TEST(Freezing, UnfreezingBetweenMicroBatchesNamesTheParameter) {
  for (const bool frozen : {true, false}) {  // without slots and with
    RunOptions options = FreezingOptions(2, 5);
    options.job.accumulate_steps = 2;
    const auto run = testing::Run(options, [frozen](TestProgram& p) {
      PlannedProgram({.freeze_at = 2, .frozen = frozen})(p);
      const auto step = p.on_step;
      p.on_step = [step](TestProgram& self, Step& of, const data::Batch& batch) {
        step(self, of, batch);
        if (of.number() == 3) (*self.model)["base"].set_requires_grad(true);
      };
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    EXPECT_THAT(std::string(Message(run.status)),
                HasSubstr("\"net.base\" was unfrozen after the first micro-batch of a step"));
  }
}

// ---- One replica, step by step

// Counts what is taken of the memory that other processes can reach.
class Counting : public Communicator {
 public:
  explicit Counting(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int allocations = 0;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string Describe() const override { return inner_->Describe(); }
  WorkPtr AllReduce(Buffer buffer, ReduceOp op) override { return inner_->AllReduce(buffer, op); }
  WorkPtr Broadcast(Buffer buffer, int root) override { return inner_->Broadcast(buffer, root); }
  WorkPtr AllGather(Buffer send, Buffer receive) override {
    return inner_->AllGather(send, receive);
  }
  WorkPtr ReduceScatter(Buffer send, Buffer receive, ReduceOp op) override {
    return inner_->ReduceScatter(send, receive, op);
  }
  WorkPtr Barrier() override { return inner_->Barrier(); }
  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    ++allocations;
    return inner_->AllocateReducible(bytes);
  }
  void Abort(absl::Status why) override { inner_->Abort(std::move(why)); }
  absl::Status status() const override { return inner_->status(); }
  void set_timeout(Duration timeout) override { inner_->set_timeout(timeout); }

 private:
  const std::shared_ptr<Communicator> inner_;
};

class OneReplica : public ::testing::Test {
 protected:
  void Make(Plan plan) {
    communicator_ = std::make_unique<Counting>(
        std::move(collective::MakeThreadCommunicators(1, std::chrono::seconds(5))[0]));
    auto replica = Replica::Make(
        job_,
        [&] {
          auto program = std::make_unique<TestProgram>();
          PlannedProgram(plan)(*program);
          program_ = program.get();
          return program;
        },
        c10::Device(at::kCPU));
    ASSERT_TRUE(replica.ok()) << replica.status();
    replica_ = *std::move(replica);
    ASSERT_TRUE(replica_->Attach(communicator_.get(), {4, 4}, job_.collective).ok());
    runner_ = StepRunner::Make(replica_.get(), communicator_.get(), job_,
                               StepRunnerOptions{.global_batch_size = 4});
  }
  absl::Status Run(const StepRunner::Body& body) {
    const data::Batch batch = {TwelveExamples().slice(0, 0, 4),
                               TwelveExamples().slice(0, 0, 4).sum(1)};
    StepPlan plan;
    plan.steps_done = steps_;
    plan.global_examples = 4;
    const auto result = runner_->Run(plan, batch, 4, body);
    if (result.ok()) ++steps_;
    return result.status();
  }
  at::Tensor base() { return (*program_->model)["base"]; }
  void Minimize(muster::Step& step, const data::Batch& batch) {
    const at::Tensor prediction = at::matmul(batch[0] * base(), (*program_->model)["head"]);
    step.minimize(program_->optimizers["adam"], (prediction - batch[1]).square());
  }
  std::vector<at::Tensor> State() {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : replica_->state()) copies.push_back(tensor.detach().clone());
    return copies;
  }

  Job job_ = FreezingOptions(1, 1).job;
  std::unique_ptr<Counting> communicator_;
  TestProgram* program_ = nullptr;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<StepRunner> runner_;
  int64_t steps_ = 0;
};

TEST_F(OneReplica, AStepThatIsGivenUpTakesItsUnfreezingBack) {
  Make({});
  const StepRunner::Body twice = [&](muster::Step& step, const data::Batch& batch) {
    Minimize(step, batch);
    Minimize(step, batch);
  };
  ASSERT_TRUE(Run(twice).ok());
  ASSERT_TRUE(Run(twice).ok());
  const std::vector<at::Tensor> before = State();
  const auto trainable = replica_->Trainable();
  bool fails = true;
  const StepRunner::Body between = [&](muster::Step& step, const data::Batch& batch) {
    Minimize(step, batch);
    base().set_requires_grad(true);
    Minimize(step, batch);
    if (fails) throw std::runtime_error("given up");
  };
  EXPECT_EQ(Message(Run(between)), "train_step failed: given up");
  const std::vector<at::Tensor> after = State();
  ASSERT_EQ(after.size(), before.size()) << "base has no slots any more";
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i])) << i;
  EXPECT_EQ(replica_->Trainable(), trainable);
  // Made again it is as if it had not been tried.
  fails = false;
  ASSERT_TRUE(Run(between).ok());
  const std::vector<at::Tensor> again = State();
  Make({});
  steps_ = 0;
  for (const auto& body : {twice, twice, between}) ASSERT_TRUE(Run(body).ok());
  const std::vector<at::Tensor> straight = State();
  ASSERT_EQ(again.size(), straight.size());
  EXPECT_GT(again.size(), before.size());
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(at::equal(again[i], straight[i])) << i;
}

TEST_F(OneReplica, GoingBackAndForthUsesTwoSinksAndNoMore) {
  Make({.frozen = false});
  for (int i = 0; i < 12; ++i) {
    base().set_requires_grad(i % 2 == 0);
    ASSERT_TRUE(
        Run([&](muster::Step& step, const data::Batch& batch) { Minimize(step, batch); }).ok());
    if (i == 3) communicator_->allocations = 0;
  }
  EXPECT_EQ(communicator_->allocations, 0);
}

TEST_F(OneReplica, ChangingForGoodKeepsOneSink) {
  Make({});
  for (int i = 0; i < 4; ++i) {
    if (i == 2) base().set_requires_grad(true);
    ASSERT_TRUE(
        Run([&](muster::Step& step, const data::Batch& batch) { Minimize(step, batch); }).ok());
    EXPECT_EQ(replica_->optimizers()[0].idle_gradients, nullptr);
  }
}

TEST(Freezing, AnOptimizerWithNothingToTrainDoesNothing) {
  const auto run = testing::Run(FreezingOptions(2, 3), [](TestProgram& p) {
    Plan plan;
    plan.frozen = false;
    PlannedProgram(plan)(p);
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
  RunOptions options = FreezingOptions(2, 2);
  options.checkpoints = &kept;
  const auto run = testing::Run(options, [](TestProgram& p) {
    PlannedProgram({})(p);
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
    const auto run = testing::Run(FreezingOptions(1, 3), [=](TestProgram& p) {
      PlannedProgram({})(p);
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
  const Job job = FreezingOptions(1, 1).job;
  TestProgram* program = nullptr;
  auto replica = Replica::Make(
      job,
      [&] {
        auto made = std::make_unique<TestProgram>();
        PlannedProgram({})(*made);
        program = made.get();
        return made;
      },
      c10::Device(at::kCPU));
  ASSERT_TRUE(replica.ok()) << replica.status();
  std::vector<std::unique_ptr<GradientSink>> sinks;
  sinks.push_back(std::make_unique<NoSink>());
  ASSERT_TRUE((*replica)->Attach(std::move(sinks), {}).ok());
  EXPECT_TRUE((*replica)->optimizer_set().FollowProgram(0).ok());
  (*program->model)["head"].set_requires_grad(false);
  EXPECT_TRUE((*replica)->optimizer_set().FollowProgram(0).ok()) << "freezing is fine";
  (*program->model)["base"].set_requires_grad(true);
  EXPECT_THAT(std::string(Message((*replica)->optimizer_set().FollowProgram(0))),
              ::testing::AllOf(
                  HasSubstr("\"net.base\" did not require a gradient after build() and does now"),
                  HasSubstr("freeze it in every step before it is to train")));
}

}  // namespace
}  // namespace muster
