// Tests the input and the end of a program's own loop: several steps over a batch, data sets
// besides the splits, streams, finish(), and means of reported values. A run that is cut after any
// step and continues, also with another number of replicas, equals the uncut run.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <mutex>

#include "tests/unit/train/ten_examples.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::LeastSquares;
using testing::MakeJob;
using testing::Reread;
using testing::RunIt;
using testing::RunResult;
using testing::SetUp;
using testing::SquaredError;
using testing::TestProgram;
using testing::TheData;

// Cuts the run after every step, continues it with each number of replicas, and compares the rest.
void ExpectContinuesAfterEveryStep(const Job& job, const SetUp& set_up, size_t steps) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment&) { return true; };
  const RunResult whole = RunIt(job, 2, set_up, &kept);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  ASSERT_EQ(whole.recorder.steps.size(), steps);
  const std::vector<double> want = whole.recorder.losses();
  for (size_t cut = 0; cut + 1 < kept.kept.size(); ++cut) {
    for (const int replicas : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << "after step " << cut + 1 << ", " << replicas);
      KeptCheckpoints again;
      const checkpoint::Snapshot from = Reread(kept.kept[cut]);
      const RunResult rest = RunIt(job, replicas, set_up, &again, &from);
      ASSERT_TRUE(rest.status.ok()) << rest.status;
      const std::vector<double> losses = rest.recorder.losses();
      ASSERT_EQ(losses.size(), steps - cut - 1);
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], want[cut + 1 + i], 1e-5) << "step " << cut + 2 + i;
      for (const auto& [name, value] : rest.replicas[0])
        EXPECT_TRUE(at::allclose(value, whole.replicas[0].at(name), 1e-4, 1e-5)) << name;
      const checkpoint::Extras &extras = again.kept.back().state.extras,
                               &whole_extras = kept.kept.back().state.extras;
      EXPECT_EQ(extras.datasets, whole_extras.datasets);
      EXPECT_EQ(extras.stream, whole_extras.stream);
      EXPECT_EQ(extras.batch_steps, whole_extras.batch_steps);
      const EpochReport *got = rest.recorder.Find("train", 1),
                        *expected = whole.recorder.Find("train", 1);
      if (expected == nullptr || expected->step <= static_cast<int64_t>(cut) + 1) continue;
      ASSERT_NE(got, nullptr);
      EXPECT_EQ(got->examples, expected->examples);
      for (const auto& [name, value] : expected->metrics)
        EXPECT_NEAR(got->metrics.at(name), value, 1e-5) << name;
    }
  }
}

// A critic that is stepped three times for each step of the other one.
void CriticAndActor(TestProgram& p) {
  p.on_build = [](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::zeros({2}));
    self.model->parameter("b", at::zeros({}));
    builder.model("critic", self.model);
    self.second = std::make_shared<testing::Tensors>();
    self.second->parameter("scale", at::ones({}));
    builder.model("actor", self.second);
    self.optimizers["critic"] =
        builder.optimizer("critic", {"critic"}, {{"name", "sgd"}, {"momentum", 0.9}}, 0.02);
    self.optimizers["actor"] = builder.optimizer("actor", {"actor"}, {{"name", "adam"}}, 0.01);
    builder.dataset(Split::kTrain, testing::Tensors2(TheData().x, TheData().y));
  };
  p.on_run = [](TestProgram& self, Loop& loop) {
    const auto loss = [&self](const data::Batch& part) {
      return (at::matmul(part[0], (*self.model)["w"]) * (*self.second)["scale"] +
              (*self.model)["b"] - part[1])
          .square();
    };
    data::Batch batch;
    while (loop.next(&batch, 4)) {
      while (const int64_t left = loop.steps_left()) {
        loop.step([&](Step& step, const data::Batch& part) {
          step.report(left > 1 ? "critic" : "actor", loss(part));
          step.minimize(self.optimizers[left > 1 ? "critic" : "actor"], loss(part));
        });
      }
    }
  };
}

TEST(SeveralSteps, GoOnBetweenTwoStepsOfABatch) {
  ExpectContinuesAfterEveryStep(MakeJob(), CriticAndActor, 24);  // 3 batches of 4 steps, twice
}

TEST(SeveralSteps, TheSavedStateSaysWhichAreDone) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment&) { return true; };
  const RunResult run = RunIt(MakeJob(1), 2, CriticAndActor, &kept);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto& third = kept.kept[2].state;
  EXPECT_EQ(third.offset, 0);
  EXPECT_EQ(third.extras.batch_steps, 4);
  EXPECT_EQ(third.extras.batch_steps_done, 3);
  EXPECT_EQ(kept.kept[3].state.offset, 4);
  EXPECT_EQ(kept.kept[3].state.extras.batch_steps, 0);
  EXPECT_EQ(run.recorder.Find("train", 0)->examples, 40) << "of all steps";
  EXPECT_EQ(run.recorder.Find("train", 0)->metrics.count("critic"), 1u);
  size_t ends = 0;
  for (const SaveMoment& moment : kept.moments) ends += moment.epoch_end ? 1 : 0;
  EXPECT_EQ(ends, 1u) << "a batch's steps are no ends of epochs";
}

TEST(SeveralSteps, MaxStepsMayEndWithinABatch) {
  Job job = MakeJob();
  job.max_steps = 6;
  KeptCheckpoints kept, more;
  const RunResult run = RunIt(job, 2, CriticAndActor, &kept);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.recorder.steps.size(), 6u);
  job.max_steps.reset();
  const RunResult rest = RunIt(job, 1, CriticAndActor, &more, &kept.kept.back());
  EXPECT_EQ(rest.recorder.steps.size(), 18u);
}

std::string Refused(const std::function<void(TestProgram&, Loop&)>& body) {
  const RunResult run = RunIt(
      MakeJob(), 2,
      [&](TestProgram& p) {
        LeastSquares(p, TheData().x, TheData().y);
        p.on_run = body;
      },
      nullptr);
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed) << run.status;
  return std::string(Message(run.status));
}

TEST(SeveralSteps, WhatNextDidNotSayIsRefused) {
  const auto step = [](TestProgram& self, Loop& loop) {
    loop.step([&](Step& s, const data::Batch& part) {
      s.minimize(self.optimizers["sgd"], SquaredError(self, part));
    });
  };
  EXPECT_THAT(Refused([&](TestProgram& self, Loop& loop) { step(self, loop); }),
              HasSubstr("step was called without a batch"));
  EXPECT_THAT(Refused([&](TestProgram& self, Loop& loop) {
                data::Batch batch;
                loop.next(&batch);
                step(self, loop);
                step(self, loop);
              }),
              HasSubstr("once more than the one step that next() gave the batch for: call next() "
                        "first, or say next(&batch, 2)"));
  EXPECT_THAT(Refused([&](TestProgram& self, Loop& loop) {
                data::Batch batch;
                loop.next(&batch, 3);
                step(self, loop);
                loop.next(&batch, 3);
              }),
              HasSubstr("next was called after 1 of the 3 steps over a batch"));
  EXPECT_THAT(Refused([&](TestProgram&, Loop& loop) {
                data::Batch batch;
                loop.next(&batch, 0);
              }),
              HasSubstr("a batch is for at least 1 step"));
}

// ---- Data sets of the program's own

DatasetHandle more, all;  // of any replica: handles are the same

void WithMoreData(TestProgram& p) {
  LeastSquares(p, TheData().x, TheData().y);
  const auto build = p.on_build;
  p.on_build = [build](TestProgram& self, Builder& builder) {
    build(self, builder);
    const auto shuffled = []() -> absl::StatusOr<data::DatasetPtr> {
      auto tensors = data::FromTensors({TheData().x.slice(0, 0, 7), TheData().y.slice(0, 0, 7)});
      return data::Shuffle(*tensors);
    };
    more = builder.dataset("more", shuffled, {.batch_size = 3, .repeat = true});
    all = builder.dataset("all", shuffled, {.batch_size = 2, .distributed = false});
  };
  p.on_run = [](TestProgram& self, Loop& loop) {
    data::Batch batch, extra, whole;
    while (loop.next(&batch)) {
      EXPECT_TRUE(loop.next(more, &extra)) << "it repeats";
      if (!loop.next(all, &whole)) {
        EXPECT_TRUE(loop.next(all, &whole)) << "the next pass";
      }
      EXPECT_LE(whole[0].size(0), 2);
      loop.step([&](Step& step, const data::Batch& part) {
        // Every replica has all of `whole`; each adds its share of it to its examples'.
        const at::Tensor own = SquaredError(self, part);
        const at::Tensor of_extra = SquaredError(self, extra).sum() / 3;
        const at::Tensor of_whole = SquaredError(self, whole).sum() / (2.0 * step.num_replicas());
        step.regularize((of_extra * step.num_replicas() + of_whole * step.num_replicas()) * 0.1);
        step.minimize(self.optimizers["sgd"], own);
      });
    }
  };
}

TEST(NamedData, IsReadInTheRightOrderAfterEveryCutAndByAnyNumberOfReplicas) {
  ExpectContinuesAfterEveryStep(MakeJob(3), WithMoreData, 9);
}

TEST(NamedData, DistributedOnesAreSlicedAndOthersAreNot) {
  std::mutex mutex;
  std::vector<std::vector<int64_t>> sizes;
  const RunResult run = RunIt(
      MakeJob(), 3,
      [&](TestProgram& p) {
        WithMoreData(p);
        p.on_run = [&](TestProgram&, Loop& loop) {
          std::vector<int64_t> seen;
          data::Batch batch;
          while (loop.next(all, &batch)) {
            seen.push_back(batch[0].size(0));
            EXPECT_EQ(loop.gather(batch[0]).size(0), 3 * batch[0].size(0));
          }
          for (int i = 0; i < 3; ++i) {
            loop.next(more, &batch);
            seen.push_back(loop.gather(batch[0]).size(0));
          }
          std::lock_guard<std::mutex> lock(mutex);
          sizes.push_back(seen);
        };
      },
      nullptr);
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(sizes.size(), 3u);
  for (const auto& seen : sizes)
    EXPECT_EQ(seen, (std::vector<int64_t>{2, 2, 2, 1, /*sliced*/ 3, 3, 1}));
}

// ---- Streams

// A stream of the data's examples, which reports its end but not its size.
data::DatasetPtr Streamed(data::Reopen reopen) {
  class Rows final : public data::Stream {
   public:
    explicit Rows(int64_t first) : next_(first) {}
    absl::StatusOr<data::Example> Next() override {
      if (next_ >= TheData().x.size(0)) return absl::OutOfRangeError("no more");
      const int64_t row = next_++;
      return data::Example{TheData().x[row], TheData().y[row]};
    }

   private:
    int64_t next_;
  };
  return data::FromStream(
      [](const data::Context&, int64_t first) { return std::make_unique<Rows>(first); }, reopen);
}

SetUp StreamProgram(data::Reopen reopen = data::Reopen::kFromStart) {
  return [reopen](TestProgram& p) {
    LeastSquares(p, TheData().x, TheData().y);
    p.on_build = [reopen](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::zeros({2}));
      self.model->parameter("b", at::zeros({}));
      builder.model("net", self.model);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
      builder.dataset(Split::kTrain, [reopen] { return Streamed(reopen); });
    };
  };
}

TEST(StreamedTraining, IsTheTrainingOfADatasetAndGoesOnExactly) {
  const RunResult sized = RunIt(
      MakeJob(3), 1, [](TestProgram& p) { LeastSquares(p, TheData().x, TheData().y); }, nullptr);
  const RunResult streamed = RunIt(MakeJob(3), 3, StreamProgram(), nullptr);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status;
  ASSERT_EQ(streamed.recorder.steps.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(streamed.recorder.losses()[i], sized.recorder.losses()[i], 1e-5);
    EXPECT_EQ(streamed.recorder.steps[i].epoch, sized.recorder.steps[i].epoch);
    EXPECT_EQ(streamed.recorder.steps[i].examples, sized.recorder.steps[i].examples);
  }
  EXPECT_EQ(streamed.recorder.start.steps_per_epoch, 0) << "not known";
  ExpectContinuesAfterEveryStep(MakeJob(2), StreamProgram(), 6);
  Job job = MakeJob(4);
  job.steps_per_epoch = 3;
  job.global_batch_size = 3;  // the stream ends after 4 batches, within every second epoch
  ExpectContinuesAfterEveryStep(job, StreamProgram(data::Reopen::kAtExample), 8);
}

TEST(StreamedTraining, MaxStepsEndsIt) {
  Job job = MakeJob();
  job.epochs.reset();
  job.max_steps = 7;
  const RunResult run = RunIt(job, 2, StreamProgram(), nullptr);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.recorder.steps.size(), 7u);
  EXPECT_EQ(run.recorder.start.total_steps, 7);
}

TEST(StreamedTraining, AStreamThatIsNotReadAgainIsNotGoneOnWith) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment&) { return true; };
  ASSERT_TRUE(RunIt(MakeJob(), 1, StreamProgram(data::Reopen::kNever), &kept).status.ok());
  const RunResult within =
      RunIt(MakeJob(), 1, StreamProgram(data::Reopen::kNever), nullptr, &kept.kept[0]);
  EXPECT_EQ(ExitCodeOf(within.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(within.status)), HasSubstr("cannot be opened at example 4"));
  const RunResult between =
      RunIt(MakeJob(), 1, StreamProgram(data::Reopen::kNever), nullptr, &kept.kept[2]);
  EXPECT_TRUE(between.status.ok()) << between.status;
  EXPECT_EQ(between.recorder.steps.size(), 3u);
}

TEST(StreamedTraining, SchedulesThatCountEpochsAreRefused) {
  Job job = MakeJob();
  job.learning_rate = {{"name", "step"}, {"initial", 0.1}, {"every_epochs", 1}};
  const absl::Status counted = RunIt(job, 2, StreamProgram(), nullptr).status;
  EXPECT_EQ(ExitCodeOf(counted), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(counted)), HasSubstr("every_epochs counts epochs, and the"));
  job.learning_rate = {{"name", "cosine"}, {"initial", 0.1}};
  const absl::Status cosine = RunIt(job, 2, StreamProgram(), nullptr).status;
  EXPECT_THAT(std::string(Message(cosine)), HasSubstr("decay_steps is missing"));
  job.max_steps = 4;
  EXPECT_TRUE(RunIt(job, 2, StreamProgram(), nullptr).status.ok());
  job.max_steps.reset();
  job.steps_per_epoch = 2;
  EXPECT_TRUE(RunIt(job, 2, StreamProgram(), nullptr).status.ok());
}

TEST(StreamedTraining, OtherSplitsNeedTheirSize) {
  const RunResult run = RunIt(
      MakeJob(), 1,
      [](TestProgram& p) {
        LeastSquares(p, TheData().x, TheData().y);
        const auto build = p.on_build;
        p.on_build = [build](TestProgram& self, Builder& builder) {
          build(self, builder);
          builder.dataset(Split::kValidation, [] { return Streamed(data::Reopen::kFromStart); });
        };
      },
      nullptr);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("The dataset 'validation' does not know its size"));
}

// ---- The end

SetUp EndsAfter(int64_t steps, bool by_finish) {
  return [=](TestProgram& p) {
    LeastSquares(p, TheData().x, TheData().y);
    p.on_run = [=](TestProgram& self, Loop& loop) {
      data::Batch batch;
      while (loop.next(&batch)) {
        loop.step([&](Step& step, const data::Batch& part) { self.on_step(self, step, part); });
        if (loop.steps() != steps) continue;
        if (!by_finish) return;
        loop.finish();
        EXPECT_FALSE(loop.next(&batch));
        loop.finish();  // it is
      }
    };
  };
}

TEST(TheEnd, FinishAndAnEarlyReturnSaveTheLastState) {
  for (const bool by_finish : {true, false}) {
    for (const int replicas : {1, 3}) {
      KeptCheckpoints kept, again;
      const RunResult run = RunIt(MakeJob(5), replicas, EndsAfter(4, by_finish), &kept);
      ASSERT_TRUE(run.status.ok()) << run.status;
      EXPECT_EQ(run.recorder.steps.size(), 4u);
      ASSERT_EQ(kept.kept.size(), 1u);
      EXPECT_TRUE(kept.moments.back().last);
      EXPECT_EQ(kept.kept[0].state.step, 4);
      EXPECT_TRUE(kept.kept[0].state.extras.finished);
      EXPECT_EQ(run.recorder.Find("train", 1)->examples, 4) << "the part that was trained";
      EXPECT_EQ(run.recorder.finished, 4);
      // A run that continues from it has nothing to do.
      const checkpoint::Snapshot end = Reread(kept.kept[0]);
      const RunResult rest = RunIt(MakeJob(5), replicas, EndsAfter(4, by_finish), &again, &end);
      EXPECT_TRUE(rest.status.ok()) << rest.status;
      EXPECT_TRUE(rest.recorder.steps.empty());
      EXPECT_TRUE(rest.recorder.start.finished);
    }
  }
}

TEST(TheEnd, AStateThatIsSavedAlreadyIsNotSavedAgain) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment& moment) { return moment.step == 3; };
  ASSERT_TRUE(RunIt(MakeJob(5), 2, EndsAfter(3, true), &kept).status.ok());
  EXPECT_EQ(kept.kept.size(), 1u);
}

TEST(TheEnd, ReplicasThatDoNotEndTogetherSaySo) {
  const std::string error = Refused([](TestProgram& self, Loop& loop) {
    data::Batch batch;
    while (loop.next(&batch)) {
      if (loop.replica() == 1 && loop.steps() == 2) loop.finish();
      if (loop.replica() == 0 && loop.steps() == 2) return;
      loop.step([&](Step& step, const data::Batch& part) { self.on_step(self, step, part); });
    }
  });
  EXPECT_THAT(error,
              HasSubstr("replica 0 returned from run() after step 2, replica 1 finishes after "
                        "step 2: every replica must make the same calls"));
}

// ---- Reported values and passes

void Reporting(TestProgram& p) {
  LeastSquares(p, TheData().x, TheData().y);
  const auto build = p.on_build;
  p.on_build = [build](TestProgram& self, Builder& builder) {
    build(self, builder);
    builder.dataset(Split::kValidation,
                    testing::Tensors2(TheData().x.slice(0, 0, 5), TheData().y.slice(0, 0, 5)));
    builder.dataset(Split::kTest, testing::Tensors2(TheData().x, TheData().y));
    builder.test_every(2);
    self.metrics["mse"] = builder.metric("mse", MakeMeanSquaredError());
  };
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    step.report("MAE(X, F(G(X)))", batch[1].abs());
    step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
  };
  p.on_eval = [](TestProgram&, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss(batch[1].square());
    evaluation.report("MAE(X, F(G(X)))", batch[1].abs());
  };
}

class OverReplicas : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, OverReplicas, ::testing::Values(1, 2, 3, 6));

TEST_P(OverReplicas, ReportedValuesHaveMeansOverEpochAndPass) {
  const RunResult run = RunIt(MakeJob(5), GetParam(), Reporting, nullptr);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const double all = TheData().y.abs().mean().item<double>();
  const double first = TheData().y.slice(0, 0, 5).abs().mean().item<double>();
  const std::string name = "MAE(X, F(G(X)))";
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    EXPECT_NEAR(run.recorder.Find("train", epoch)->metrics.at(name), all, 1e-6);
    EXPECT_NEAR(run.recorder.Find("validation", epoch)->metrics.at(name), first, 1e-6);
    const EpochReport* test = run.recorder.Find("test", epoch);
    ASSERT_EQ(test != nullptr, epoch == 1 || epoch == 3 || epoch == 4) << "every 2, and the end";
    if (test != nullptr) {
      EXPECT_NEAR(test->metrics.at(name), all, 1e-6);
    }
  }
}

TEST(Reported, MeansAndDuePassesSurviveARestart) {
  ExpectContinuesAfterEveryStep(MakeJob(4), Reporting, 12);
  KeptCheckpoints kept, again;
  kept.wanted = [](const SaveMoment& moment) { return moment.epoch_end; };
  ASSERT_TRUE(RunIt(MakeJob(4), 1, Reporting, &kept).status.ok());
  ASSERT_TRUE(kept.kept[1].state.test_due);
  EXPECT_FALSE(kept.kept[0].state.test_due);
  const RunResult rest = RunIt(MakeJob(4), 2, Reporting, &again, &kept.kept[1]);
  EXPECT_NE(rest.recorder.Find("test", 1), nullptr) << "it was not through";
}

TEST(Reported, NamesOfAPassAreCompared) {
  const auto error_of = [](int replicas,
                           const std::function<void(Evaluation&, const at::Tensor&)>& f) {
    const RunResult run = RunIt(
        MakeJob(1), replicas,
        [&](TestProgram& p) {
          Reporting(p);
          p.on_eval = [&](TestProgram&, Evaluation& evaluation, const data::Batch& batch) {
            f(evaluation, batch[1]);
          };
        },
        nullptr);
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed) << run.status;
    return std::string(Message(run.status));
  };
  EXPECT_THAT(error_of(2,
                       [](Evaluation& evaluation, const at::Tensor& y) {
                         evaluation.report(
                             y.size(0) > 0 && y[0].item<float>() == TheData().y[0].item<float>()
                                 ? "first"
                                 : "other",
                             y);
                       }),
              HasSubstr("in the validation pass: every replica must report() the same names"));
  EXPECT_THAT(error_of(1, [](Evaluation& e, const at::Tensor& y) { e.report("mse", y); }),
              HasSubstr("report(\"mse\"): that name is a metric's"));
  EXPECT_THAT(error_of(1, [](Evaluation& e, const at::Tensor& y) { e.report("a", y.mean()); }),
              HasSubstr("report(\"a\") in eval_step needs one value for each example, shape [4]"));
}

}  // namespace
}  // namespace muster
