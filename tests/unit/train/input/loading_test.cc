// How a replica's examples are loaded: threads, damaged examples, and who reads what.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>

#include "common/base/clock.h"
#include "common/train/input/damaged_examples.h"
#include "common/train/input/loop_data.h"
#include "common/train/step/single_example.h"
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

data::DatasetPtr All() { return *data::FromTensors({TheData().x, TheData().y}); }

// The data's examples, of which those that `bad` says are damaged.
data::DatasetPtr Damaged(std::function<bool(int64_t)> bad) {
  return data::FromFunction(
      10, [bad](int64_t i, const data::Context&) -> absl::StatusOr<data::Example> {
        if (bad(i)) return DataError(fmt::format("'{}.jpg' is truncated", i));
        return data::Example{TheData().x[i].clone(), TheData().y[i].clone()};
      });
}

SetUp WithData(const data::DatasetPtr& train, const data::DatasetPtr& validation = nullptr) {
  return [train, validation](TestProgram& p) {
    LeastSquares(p, TheData().x, TheData().y);
    p.on_build = [train, validation](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::zeros({2}));
      self.model->parameter("b", at::zeros({}));
      builder.model("net", self.model);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
      builder.dataset(Split::kTrain, [train] { return train; });
      if (validation != nullptr)
        builder.dataset(Split::kValidation, [validation] { return validation; });
    };
    p.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
      evaluation.loss(SquaredError(self, batch));
    };
  };
}

TEST(Loading, IsTheSameByAnyNumberOfThreadsThatReplicasShare) {
  const auto run = [](const Json& data, int replicas) {
    Job job = MakeJob(4);
    job.data = data;
    const auto shuffled = data::Shuffle(All());
    const RunResult result = RunIt(job, replicas, WithData(shuffled));
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.recorder.losses();
  };
  for (const int replicas : {1, 3}) {
    const std::vector<double> want = run({{"prefetch", 0}}, replicas);
    EXPECT_EQ(want.size(), 12u);
    EXPECT_EQ(run(nullptr, replicas), want);
    EXPECT_EQ(run({{"threads", 1}, {"prefetch", 1}}, replicas), want);
    EXPECT_EQ(run({{"threads", 5}, {"prefetch", 9}}, replicas), want);
  }
}

TEST(DamagedData, IsLeftOutOfTheMeanOfWhatIsThere) {
  Job job = MakeJob(3);
  job.data = {{"on_error", "skip"}};
  // Damages two examples of the first batch of 4, one of the second, and both of the last one.
  const auto bad = Damaged([](int64_t i) { return i == 1 || i == 2 || i == 7 || i >= 8; });
  const RunResult one = RunIt(job, 1, WithData(bad, bad));
  ASSERT_TRUE(one.status.ok()) << one.status;
  ASSERT_EQ(one.recorder.steps.size(), 9u);
  // By hand: w and b are 0 at first.
  const at::Tensor y = TheData().y;
  EXPECT_NEAR(one.recorder.losses()[0], (y[0].square() + y[3].square()).div(2).item<double>(),
              1e-6);
  EXPECT_EQ(one.recorder.steps[0].examples, 2);
  EXPECT_EQ(one.recorder.steps[1].examples, 3);
  EXPECT_EQ(one.recorder.steps[2].examples, 0);
  EXPECT_EQ(one.recorder.losses()[2], 0);
  EXPECT_EQ(one.recorder.Find("train", 2)->examples, 5);
  EXPECT_EQ(one.recorder.Find("validation", 2)->examples, 5);
  EXPECT_EQ(one.recorder.left_out.at("train"), 15);
  EXPECT_EQ(one.recorder.left_out.at("validation"), 15);
  for (const int replicas : {2, 3, 4}) {
    const RunResult more = RunIt(job, replicas, WithData(bad, bad));
    ASSERT_TRUE(more.status.ok()) << more.status;
    for (size_t i = 0; i < 9; ++i)
      EXPECT_NEAR(more.recorder.losses()[i], one.recorder.losses()[i], 1e-6);
    EXPECT_EQ(more.recorder.left_out, one.recorder.left_out);
    EXPECT_NEAR(more.recorder.Find("validation", 2)->metrics.at("loss"),
                one.recorder.Find("validation", 2)->metrics.at("loss"), 1e-6);
    // The damaged examples of all replicas are named in one place.
    EXPECT_THAT(more.recorder.damaged, ::testing::Contains("'9.jpg' is truncated"));
    EXPECT_THAT(more.recorder.damaged, ::testing::Contains("'1.jpg' is truncated"));
  }
}

// Their mean over replicas counts by examples, of which a batch that is all damaged has none.
TEST(DamagedData, LeavesBuffersAlone) {
  Job job = MakeJob(1);
  job.data = {{"on_error", "skip"}};
  const auto bad = Damaged([](int64_t i) { return i >= 8; });
  for (const int replicas : {1, 2, 3}) {
    const RunResult run = RunIt(job, replicas, [&](TestProgram& p) {
      WithData(bad)(p);
      p.on_build = [build = p.on_build](TestProgram& self, Builder& builder) {
        self.model->buffer("running", at::ones({}));
        build(self, builder);
      };
      p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
        if (batch[0].size(0) > 0) (*self.model)["running"].mul_(0.5);
        step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
      };
    });
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.recorder.steps.size(), 3u);
    EXPECT_FLOAT_EQ(run.replicas[0].at("running").item<float>(), 0.25f);
  }
}

TEST(DamagedData, EndsTheJobWhereNothingIsLeft) {
  Job job = MakeJob(2);
  job.data = {{"on_error", "skip"}};
  const RunResult none = RunIt(job, 2, WithData(Damaged([](int64_t) { return true; })));
  EXPECT_EQ(ExitCodeOf(none.status), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(none.status)), HasSubstr("none of the examples is readable"));
  job.data = nullptr;
  const RunResult strict = RunIt(job, 2, WithData(Damaged([](int64_t i) { return i == 5; })));
  EXPECT_EQ(ExitCodeOf(strict.status), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(strict.status)), HasSubstr("'5.jpg' is truncated"));
}

TEST(DamagedData, IsNamedInUtf8) {
  Job job = MakeJob(1);
  job.data = {{"on_error", "skip"}};
  const auto bad =
      data::FromFunction(10, [](int64_t i, const data::Context&) -> absl::StatusOr<data::Example> {
        if (i == 1) return DataError("'caf\xe9.jpg' is truncated");
        if (i == 5) return DataError(std::string(5000, 'x') + "\xc3\xa9");
        return data::Example{TheData().x[i].clone(), TheData().y[i].clone()};
      });
  for (const int replicas : {1, 2}) {
    const RunResult run = RunIt(job, replicas, WithData(bad));
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.recorder.damaged.size(), 2u);
    EXPECT_THAT(run.recorder.damaged, ::testing::Contains("'caf\xef\xbf\xbd.jpg' is truncated"));
    for (const std::string& name : run.recorder.damaged) EXPECT_NO_THROW(Json(name).dump());
  }
}

// Where training ends within an epoch, what was damaged in it so far says nothing of the rest.
TEST(DamagedData, AtTheBeginningOfAnEpochEndsNoTraining) {
  const auto bad = Damaged([](int64_t i) { return i < 4; });  // the first batch of three
  for (const int64_t steps : {1, 4}) {
    for (const bool finishes : {false, true}) {
      Job job = MakeJob(3);
      job.data = {{"on_error", "skip"}};
      if (!finishes) job.max_steps = steps;
      KeptCheckpoints kept;
      kept.wanted = [](const SaveMoment& moment) { return moment.last; };
      const auto set_up = [&](TestProgram& p) {
        WithData(bad)(p);
        if (!finishes) return;
        p.on_run = [steps](TestProgram& self, Loop& loop) {
          data::Batch batch;
          while (loop.steps() < steps && loop.next(&batch))
            loop.step([&](Step& step, const data::Batch& part) { self.on_step(self, step, part); });
          loop.finish();
        };
      };
      const RunResult run = RunIt(job, 2, set_up, &kept);
      EXPECT_TRUE(run.status.ok()) << run.status;
      EXPECT_EQ(static_cast<int64_t>(run.recorder.steps.size()), steps);
      ASSERT_EQ(kept.kept.size(), 1u);
      EXPECT_EQ(kept.kept[0].state.step, steps);
    }
  }
  // An epoch of whose own data nothing is there.
  Job job = MakeJob(3);
  job.data = {{"on_error", "skip"}};
  job.steps_per_epoch = 1;
  const RunResult none = RunIt(job, 2, WithData(bad));
  EXPECT_EQ(ExitCodeOf(none.status), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(none.status)), HasSubstr("epoch 1 had no example to train on"));
}

// Each replica by itself: steps for 10 examples by parts of a batch of 4.
TEST(Sharding, OffEachReplicaGoesThroughAllInAnOrderOfItsOwn) {
  Job job = MakeJob(2);
  job.data = {{"auto_shard", "off"}};
  std::mutex mutex;
  std::map<int, std::vector<float>> seen;  // by replica: what it got, by x's first
  const auto set_up = [&](TestProgram& p) {
    WithData(data::Shuffle(All()))(p);
    p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor first = batch[0].select(1, 0).contiguous();
      {
        const std::lock_guard lock(mutex);
        seen[step.replica()].insert(seen[step.replica()].end(), first.const_data_ptr<float>(),
                                    first.const_data_ptr<float>() + first.numel());
      }
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  };
  const RunResult run = RunIt(job, 2, set_up);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.recorder.steps.size(), 10u);  // two epochs of five
  EXPECT_EQ(run.recorder.Find("train", 0)->examples, 20);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0], seen[1]);
  const at::Tensor column = TheData().x.select(1, 0).contiguous();
  std::vector<float> all(column.const_data_ptr<float>(), column.const_data_ptr<float>() + 10);
  std::sort(all.begin(), all.end());
  for (auto& [replica, values] : seen) {
    ASSERT_EQ(values.size(), 20u);
    for (const auto begin : {values.begin(), values.begin() + 10}) {
      std::vector<float> epoch(begin, begin + 10);
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, all);
    }
  }
}

TEST(Sharding, OffGoesOnAfterEveryStep) {
  Job job = MakeJob(2);
  job.data = {{"auto_shard", "off"}};
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment&) { return true; };
  const auto set_up = WithData(data::Shuffle(All()));
  const RunResult whole = RunIt(job, 2, set_up, &kept);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (size_t cut = 0; cut + 1 < kept.kept.size(); ++cut) {
    KeptCheckpoints again;
    const checkpoint::Snapshot from = Reread(kept.kept[cut]);
    const RunResult rest = RunIt(job, 2, set_up, &again, &from);
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    const std::vector<double> losses = rest.recorder.losses(), want = whole.recorder.losses();
    ASSERT_EQ(losses.size(), want.size() - cut - 1);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], want[cut + 1 + i], 1e-6);
  }
  // Alone an epoch has three steps, so that the fifth of five is in none: the next one begins.
  KeptCheckpoints again;
  const checkpoint::Snapshot from = Reread(kept.kept[3]);
  const RunResult alone = RunIt(job, 1, set_up, &again, &from);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  EXPECT_EQ(alone.recorder.steps.size(), 3u);
}

TEST(Sharding, OffNeedsASize) {
  Job job = MakeJob(1);
  job.max_steps = 3;
  job.data = {{"auto_shard", "off"}};
  const RunResult run = RunIt(job, 2, WithData(data::Repeat(All(), -1)));
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("the train dataset does not know its size"));
}

// A stream cannot continue after damage.
TEST(DamagedData, IsNotLeftOutWhereNobodyKnowsTheSize) {
  Job job = MakeJob(1);
  job.max_steps = 3;
  job.data = {{"on_error", "skip"}};
  const auto endless = data::Repeat(All(), -1);
  const RunResult run = RunIt(job, 2, WithData(endless));
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("data.on_error is \"skip\", and the train dataset does not know its size"));
  const RunResult named = RunIt(job, 1, [&](TestProgram& p) {
    WithData(All())(p);
    const auto build = p.on_build;
    p.on_build = [build, endless](TestProgram& self, Builder& builder) {
      build(self, builder);
      builder.dataset("more", [endless] { return endless; });
    };
  });
  EXPECT_EQ(ExitCodeOf(named.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(named.status)), HasSubstr("the \"more\" dataset"));
  job.data = nullptr;
  EXPECT_TRUE(RunIt(job, 2, WithData(endless)).status.ok());
}

TEST(DamagedData, IsSaidOnceInTheLogOfARun) {
  Job job = MakeJob(3);
  job.data = {{"on_error", "skip"}};
  // Wherever the log goes in this process.
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const RunResult run =
      RunIt(job, 2, WithData(All(), Damaged([](int64_t i) { return i == 2 || i == 7; })));
  const std::string log =
      ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.recorder.left_out.at("validation"), 6);  // three passes
  for (const std::string name : {"'2.jpg'", "'7.jpg'"}) {
    const size_t first = log.find(name);
    ASSERT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find(name, first + 1), std::string::npos) << log;
  }
}

TEST(DamageLog, SaysTwentyOfEachDataSet) {
  DamageLog log;
  std::vector<std::string> many;
  for (int i = 0; i < 30; ++i) many.push_back(fmt::format("'{}' is damaged", i));
  EXPECT_EQ(log.Warn("train", {many[0], many[1], many[0]}), 2);
  EXPECT_EQ(log.Warn("train", many), kMaxNamedExamples - 2);
  EXPECT_EQ(log.Warn("train", many), 0);
  EXPECT_EQ(log.Warn("validation", many), kMaxNamedExamples);
}

TEST(DamagedData, IsNamedWhereItLeavesAReplicaASingleExample) {
  const absl::Status status = ProgramError(std::string("a single example: ") + kSingleExampleFix);
  EXPECT_EQ(NameLeftOut(status, 0), status);
  EXPECT_EQ(NameLeftOut(ProgramError("other"), 2), ProgramError("other"));
  const absl::Status named = NameLeftOut(status, 2);
  EXPECT_EQ(ExitCodeOf(named), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(named)),
              HasSubstr("; data.on_error \"skip\" left 2 damaged examples of this batch out"));
}

// A wait for another replica, which is late for a reason of its own, is no wait for input.
TEST(Loading, WaitingForAnotherReplicaIsNoInputWait) {
  Job job = MakeJob(2);
  job.data = {{"on_error", "skip"}};  // the replicas tell each other what is left out
  const auto pause = std::chrono::milliseconds(200);
  const RunResult run = RunIt(job, 2, [&](TestProgram& p) {
    WithData(All())(p);
    p.on_run = [pause](TestProgram& self, Loop& loop) {
      data::Batch batch;
      while (true) {
        if (loop.replica() == 1) std::this_thread::sleep_for(pause);
        if (!loop.next(&batch)) return;
        loop.step([&](Step& step, const data::Batch& part) { self.on_step(self, step, part); });
      }
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  // Input may be late now and then; the other replica is late at each step.
  const auto waited = std::count_if(
      run.recorder.steps.begin(), run.recorder.steps.end(),
      [pause](const StepReport& step) { return step.input_seconds > 0.5 * Seconds(pause); });
  EXPECT_LT(2 * waited, static_cast<int64_t>(run.recorder.steps.size()));
}

TEST(Loading, ProcessesOfAHostShareItsCores) {
  FeedPlace place;
  EXPECT_EQ(LoaderCores(8, place, false), 8);
  place.replicas_on_host = 4;
  EXPECT_EQ(LoaderCores(8, place, false), 2);
  place.local_replicas = 2;
  EXPECT_EQ(LoaderCores(8, place, true), 4);
  EXPECT_EQ(LoaderCores(8, place, false), 2);
  EXPECT_EQ(LoaderCores(1, place, false), 1);
}

}  // namespace
}  // namespace muster
