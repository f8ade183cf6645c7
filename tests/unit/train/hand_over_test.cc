// The survivors of a lost chief keep reports that it may not have made, and its successor makes
// them: the last step, with the program's own values, and the passes at it.
#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <thread>

#include "common/collective/group/formation.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using testing::LeastSquares;
using ::testing::Pair;
using testing::Recorder;
using testing::SquaredError;
using testing::TestProgram;

// One process in generations that the test forms.
class Formed : public Membership {
 public:
  Generation next;
  absl::StatusOr<Generation> NextGeneration(int64_t) override { return std::move(next); }
  void SetPhase(Phase, int64_t) override {}
  absl::Status Explain(const absl::Status& local) override { return local; }
  void ReportFailure(const absl::Status&) override {}
  void RequestStop() override {}
  bool StopRequested() const override { return false; }
  absl::Status Finish(int64_t, const absl::Status& outcome) override { return outcome; }
};

struct FormedProcess {
  Recorder recorder;
  Formed membership;
  std::unique_ptr<Trainer> trainer;
};

// Three steps an epoch.
std::unique_ptr<FormedProcess> MakeFormedProcess(int64_t max_steps) {
  auto process = std::make_unique<FormedProcess>();
  TrainerOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.epochs = 2;
  options.job.max_steps = max_steps;
  options.devices = {c10::Device(at::kCPU)};
  options.observers = {&process->recorder};
  options.factory = [] {
    auto program = std::make_unique<TestProgram>();
    LeastSquares(*program, at::ones({10, 2}), at::arange(10, at::kFloat));
    const auto build = program->on_build;
    program->on_build = [build](TestProgram& self, Builder& builder) {
      build(self, builder);
      builder.dataset(Split::kValidation, testing::Tensors2(at::ones({5, 2}), at::zeros({5})));
      builder.dataset(Split::kTest, testing::Tensors2(at::ones({3, 2}), at::ones({3})));
      self.metrics["mae"] = builder.metric("mae", MakeMeanAbsoluteError());
    };
    program->on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.report("target", batch[1]);
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
    program->on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
      evaluation.loss(SquaredError(self, batch));
      evaluation.update(self.metrics["mae"], (*self.model)["b"].expand_as(batch[1]), batch[1]);
    };
    return program;
  };
  auto trainer = Trainer::Make(std::move(options));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  process->trainer = *std::move(trainer);
  return process;
}

// One generation of these processes, to its end; `owner` has the newest state.
void RunGeneration(const std::vector<FormedProcess*>& processes, int owner) {
  auto all = collective::MakeThreadCommunicators(static_cast<int>(processes.size()),
                                                 std::chrono::seconds(20));
  std::vector<absl::Status> outcomes(processes.size(), absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    Generation& generation = processes[rank]->membership.next;
    generation = Generation();
    generation.rank = static_cast<int>(rank);
    generation.replicas_per_rank.assign(processes.size(), 1);
    generation.owner = owner;
    generation.replicas.push_back(std::move(all[rank]));
    threads.emplace_back([&outcomes, rank, process = processes[rank]] {
      outcomes[rank] = process->trainer->Run(&process->membership);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome;
}

std::map<std::string, std::map<std::string, double>> Passes(const StartReport& start) {
  std::map<std::string, std::map<std::string, double>> found;
  for (const EpochReport& pass : start.passes) found[pass.split] = pass.metrics;
  return found;
}

TEST(HandOver, ASuccessorIsGivenTheLastStepAndThePassesAtIt) {
  const auto lost = MakeFormedProcess(6), survivor = MakeFormedProcess(6),
             successor = MakeFormedProcess(6);
  RunGeneration({lost.get(), survivor.get()}, 0);
  RunGeneration({successor.get(), survivor.get()}, 1);
  const StartReport& start = successor->recorder.start;
  EXPECT_EQ(start.start_step, 6);
  EXPECT_FALSE(start.validation_due);
  EXPECT_FALSE(start.test_due);
  EXPECT_TRUE(successor->recorder.steps.empty());
  const StepReport& last = lost->recorder.steps.back();
  ASSERT_TRUE(start.last_step);
  EXPECT_EQ(start.last_step->loss, last.loss);
  EXPECT_THAT(last.values, ElementsAre(Pair("target", ::testing::_)));
  EXPECT_EQ(start.last_step->values, last.values);
  EXPECT_EQ(start.train_metrics, lost->recorder.Find("train", 1)->metrics);
  EXPECT_EQ(Passes(start).size(), 2u);
  EXPECT_EQ(Passes(start)["validation"], lost->recorder.Find("validation", 1)->metrics);
  EXPECT_EQ(Passes(start)["validation"].size(), 2u) << "loss and mae";
  EXPECT_EQ(Passes(start)["test"], lost->recorder.Find("test", 1)->metrics);
  for (const EpochReport& pass : start.passes) {
    EXPECT_EQ(pass.step, 6);
    EXPECT_EQ(pass.epoch, 1);
  }
}

TEST(HandOver, APassOfAnEarlierStepIsNoneOfTheLastOnes) {
  const auto lost = MakeFormedProcess(4), survivor = MakeFormedProcess(4),
             successor = MakeFormedProcess(4);
  RunGeneration({lost.get(), survivor.get()}, 0);
  EXPECT_NE(lost->recorder.Find("validation", 0), nullptr);
  RunGeneration({successor.get(), survivor.get()}, 1);
  // The job ends within its second epoch, with passes; that of step 3 is over.
  ASSERT_EQ(successor->recorder.start.passes.size(), 2u);
  EXPECT_EQ(Passes(successor->recorder.start)["validation"],
            lost->recorder.epochs[lost->recorder.epochs.size() - 2].metrics);
  EXPECT_EQ(successor->recorder.start.passes[0].step, 4);
}

TEST(HandOver, WhoNeverTrainedHasNothingToTell) {
  const auto one = MakeFormedProcess(6);
  RunGeneration({one.get()}, 0);
  EXPECT_FALSE(one->recorder.start.last_step);
  EXPECT_TRUE(one->recorder.start.passes.empty());
}

}  // namespace
}  // namespace muster
