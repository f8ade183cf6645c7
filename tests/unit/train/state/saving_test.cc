// When the loop saves, what a snapshot holds, and what does not fit is refused.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

#include "common/train/state/snapshot.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::LeastSquares;
using testing::RunOptions;
using testing::TestProgram;

// Ten examples in batches of 4: three steps an epoch.
void Fill(TestProgram& p) {
  const at::Tensor x = at::arange(20, at::kFloat).reshape({10, 2}) / 20, y = x.sum(1);
  LeastSquares(p, x, y);
  const auto build = p.on_build;
  p.on_build = [=](TestProgram& self, Builder& builder) {
    build(self, builder);
    builder.dataset(Split::kValidation, testing::Tensors2(x, y));
    builder.dataset(Split::kTest, testing::Tensors2(x, y));
  };
  p.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss(testing::SquaredError(self, batch));
  };
}

RunOptions Options(int replicas, KeptCheckpoints* kept) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.epochs = 2;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.checkpoints = kept;
  return options;
}

class Saving : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Saving, ::testing::Values(1, 3));

TEST_P(Saving, AsksAfterEachStepAndSavesBeforeThePassesThatAreDue) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment& moment) { return moment.step == 2 || moment.epoch_end; };
  const auto run = testing::Run(Options(GetParam(), &kept), Fill);
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(kept.moments.size(), 6u) << "once a step, and by one replica";
  for (int64_t step = 1; step <= 6; ++step) {
    const SaveMoment& moment = kept.moments[step - 1];
    EXPECT_EQ(moment.step, step);
    EXPECT_EQ(moment.epoch, (step - 1) / 3);
    EXPECT_EQ(moment.epoch_end, step % 3 == 0);
    EXPECT_EQ(moment.last, step == 6);
    EXPECT_FALSE(moment.stopping);
  }
  EXPECT_THAT(run.recorder.saves, ElementsAre(2, 3, 6)) << "reported only where it is saved";
  ASSERT_EQ(kept.kept.size(), 3u);
  const checkpoint::TrainingState& within = kept.kept[0].state;
  EXPECT_EQ(within.step, 2);
  EXPECT_EQ(within.epoch, 0);
  EXPECT_EQ(within.offset, 8);
  EXPECT_EQ(within.examples, 8);
  EXPECT_EQ(within.epoch_examples, 8);
  EXPECT_FALSE(within.validation_due);
  const checkpoint::TrainingState& end = kept.kept[1].state;
  EXPECT_EQ(end.epoch, 1);
  EXPECT_EQ(end.offset, 0);
  EXPECT_EQ(end.epoch_examples, 10) << "the whole epoch's: a restart reports them";
  EXPECT_TRUE(end.validation_due);
  EXPECT_FALSE(end.test_due);
  EXPECT_TRUE(kept.kept[2].state.test_due);
  EXPECT_EQ(kept.kept[2].state.examples, 20);
  EXPECT_EQ(kept.drains, 1);
}

TEST_P(Saving, AsksAgainAfterAValidationWhoseStepIsNotSaved) {
  KeptCheckpoints kept;
  kept.wanted = [](const SaveMoment& moment) { return moment.validated; };
  const auto run = testing::Run(Options(GetParam(), &kept), Fill);
  ASSERT_TRUE(run.status.ok()) << run.status;
  std::vector<int64_t> asked, after;
  for (const SaveMoment& moment : kept.moments)
    (moment.validated ? after : asked).push_back(moment.step);
  EXPECT_THAT(asked, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(after, ElementsAre(3)) << "step 6 is saved as the last one";
  ASSERT_EQ(kept.kept.size(), 2u);
  EXPECT_EQ(kept.kept[0].state.step, 3);
  EXPECT_FALSE(kept.kept[0].state.validation_due) << "it is made";
  EXPECT_THAT(run.recorder.saves, ElementsAre(3, 6));
}

TEST_P(Saving, AStopWithinAPassIsSavedWithThePassStillDue) {
  KeptCheckpoints kept;
  RunOptions options = Options(GetParam(), &kept);
  options.stop_in_split = "validation";
  const auto run = testing::Run(options, Fill);
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kPreempted);
  EXPECT_EQ(Message(run.status), "stopped on request after step 3");
  EXPECT_EQ(run.recorder.Find("validation", 0), nullptr) << "given up";
  ASSERT_EQ(kept.kept.size(), 1u);
  EXPECT_TRUE(kept.moments.back().stopping);
  EXPECT_TRUE(kept.moments.back().epoch_end);
  EXPECT_FALSE(kept.moments.back().last);
  EXPECT_TRUE(kept.kept[0].state.validation_due);
  EXPECT_EQ(kept.drains, 1);
}

TEST_P(Saving, AnEndOrAStopThatCannotBeSavedIsRetryable) {
  for (const int64_t stop_at : {0, 2}) {
    KeptCheckpoints kept;
    kept.drained = absl::ResourceExhaustedError("no space left on the device");
    RunOptions options = Options(GetParam(), &kept);
    options.stop_at_step = stop_at;
    const auto run = testing::Run(options, Fill);
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kRetryable);
    EXPECT_EQ(Message(run.status), fmt::format("the state after step {} could not be saved: no "
                                               "space left on the device",
                                               stop_at == 0 ? 6 : 3));
  }
}

TEST(SavingNothing, IsAsGoodWhereNobodyKeepsIt) {
  RunOptions options = Options(2, nullptr);
  options.stop_at_step = 2;
  const auto run = testing::Run(options, Fill);
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kPreempted);
  EXPECT_TRUE(run.recorder.saves.empty());
}

// ---- Snapshots

Job SnapshotJob() {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  return job;
}

// A program with what names and layouts there are; `variant` changes one thing.
void DeclareVariant(TestProgram& self, Builder& builder, const std::string& variant) {
  const at::Tensor kernel =
      at::arange(24, at::kFloat).reshape({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  self.model->parameter("kernel", variant == "shape" ? kernel.narrow(0, 0, 1).clone() : kernel);
  self.model->parameter("scale", at::full({}, 0.5, variant == "type" ? at::kDouble : at::kFloat));
  if (variant != "no buffer") self.model->buffer("count", at::full({}, 7, at::kLong));
  if (variant == "buffer") self.model->buffer("flags", at::ones({3}, at::kBool));
  self.model->buffer("empty", at::zeros({0, 4}));
  builder.model("net", self.model);
  if (variant == "two models") {
    self.second = std::make_shared<testing::Tensors>();
    self.second->parameter("kernel", at::ones({2}));
    builder.model("other", self.second);
    builder.optimizer("both", {"net", "other"}, "adam", 0.1);
  } else {
    builder.optimizer("opt", {"net"}, {{"name", "sgd"}, {"momentum", 0.9}}, 0.1);
  }
  builder.dataset(Split::kTrain, testing::Tensors2(at::ones({4, 1}), at::ones({4})));
}

std::unique_ptr<Replica> MakeReplica(const Job& job, const std::string& variant = "") {
  auto replica = Replica::Make(
      job,
      [&variant] {
        auto program = std::make_unique<TestProgram>();
        program->on_build = [variant](TestProgram& self, Builder& builder) {
          DeclareVariant(self, builder, variant);
        };
        return program;
      },
      c10::Device(at::kCPU));
  EXPECT_TRUE(replica.ok()) << replica.status();
  return *std::move(replica);
}

std::vector<std::string> Names(const checkpoint::TensorSet& set) {
  std::vector<std::string> names;
  for (const auto& tensor : set.tensors) names.push_back(tensor.name);
  return names;
}

TEST(Snapshot, NamesAndOrdersEverythingRowMajor) {
  const Job job = SnapshotJob();
  const auto replica = MakeReplica(job);
  ASSERT_FALSE(replica->models()[0].parameters[0].second.is_contiguous());
  SnapshotTaker taker;
  const auto snapshot = taker.Take(*replica, InitialLoopState(job, *replica));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_THAT(Names(snapshot->model), ElementsAre("kernel", "scale", "count", "empty"));
  EXPECT_THAT(Names(snapshot->optimizer),
              ElementsAre("opt.kernel.momentum_buffer", "opt.scale.momentum_buffer"));
  const checkpoint::Tensor& kernel = *snapshot->model.Find("kernel");
  EXPECT_THAT(kernel.shape, ElementsAre(2, 3, 2, 2));
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(reinterpret_cast<const float*>(kernel.data)[i], static_cast<float>(i));
  const checkpoint::Tensor& count = *snapshot->model.Find("count");
  EXPECT_EQ(count.dtype, checkpoint::DType::kInt64);
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(count.data), 7);
}

TEST(Snapshot, SeveralModelsPrefixTheirNames) {
  const Job job = SnapshotJob();
  const auto replica = MakeReplica(job, "two models");
  SnapshotTaker taker;
  const auto snapshot = taker.Take(*replica, InitialLoopState(job, *replica));
  EXPECT_THAT(Names(snapshot->model),
              ElementsAre("net.kernel", "net.scale", "net.count", "net.empty", "other.kernel"));
  EXPECT_THAT(Names(snapshot->optimizer), ::testing::Contains("both.other.kernel.exp_avg_sq"));
  EXPECT_THAT(Names(snapshot->optimizer), ::testing::Contains("both.net.scale.step"));
}

TEST(Snapshot, IsACopyAndItsMemoryComesBack) {
  const Job job = SnapshotJob();
  const auto replica = MakeReplica(job);
  const at::Tensor scale = replica->models()[0].parameters[1].second.detach();
  const LoopState state = InitialLoopState(job, *replica);
  SnapshotTaker taker;
  auto first = *taker.Take(*replica, state);
  scale.fill_(3);
  EXPECT_EQ(*reinterpret_cast<const float*>(first.model.Find("scale")->data), 0.5f);
  const void* memory = first.model.memory.get();
  const auto second = *taker.Take(*replica, state);
  EXPECT_NE(second.model.memory.get(), memory) << "the first is still there";
  first = {};
  const auto third = *taker.Take(*replica, state);
  EXPECT_EQ(third.model.memory.get(), memory) << "pages that were touched before";
  EXPECT_EQ(*reinterpret_cast<const float*>(third.model.Find("scale")->data), 3.f);
}

TEST(Snapshot, ComesBackBitForBit) {
  const Job job = SnapshotJob();
  const auto replica = MakeReplica(job), other = MakeReplica(job);
  SnapshotTaker taker;
  replica->models()[0].buffers[0].second.fill_(123456789012345);
  replica->optimizers()[0].rule->slot(0)[0].fill_(0.25f);
  LoopState state = InitialLoopState(job, *replica), restored = state;
  state.step = 5;
  state.epoch = 1;
  state.offset = 8;
  state.examples = 18;
  state.validation_due = true;
  state.global_batch_size = 4;
  const auto snapshot = taker.Take(*replica, state);
  ASSERT_TRUE(RestoreReplica(*snapshot, job, other.get(), &restored).ok());
  const auto again = taker.Take(*other, restored);
  for (const auto& [a, b] : {std::pair(&snapshot->model, &again->model),
                             std::pair(&snapshot->optimizer, &again->optimizer)}) {
    for (size_t i = 0; i < a->tensors.size(); ++i) {
      EXPECT_EQ(std::memcmp(a->tensors[i].data, b->tensors[i].data, a->tensors[i].bytes()), 0)
          << a->tensors[i].name;
    }
  }
  EXPECT_EQ(restored.step, 5);
  EXPECT_EQ(restored.epoch, 1);
  EXPECT_EQ(restored.offset, 8);
  EXPECT_TRUE(restored.validation_due);
}

TEST(Snapshot, WhatDoesNotFitIsRefusedAndNamed) {
  const Job job = SnapshotJob();
  const auto replica = MakeReplica(job);
  SnapshotTaker taker;
  LoopState state = InitialLoopState(job, *replica);
  state.step = 40;
  const auto snapshot = *taker.Take(*replica, state);
  const auto refusal = [&](const std::string& variant) {
    const auto other = MakeReplica(job, variant);
    LoopState other_state = InitialLoopState(job, *other);
    const absl::Status status = RestoreReplica(snapshot, job, other.get(), &other_state);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << variant;
    EXPECT_EQ(other_state.step, 0);
    return std::string(Message(status));
  };
  EXPECT_EQ(refusal("shape"),
            "the checkpoint of step 40 does not fit the program: \"kernel\" is F32 [2, 3, 2, 2] in "
            "it and F32 [1, 3, 2, 2] in the program; was the program changed since?");
  EXPECT_THAT(refusal("type"), HasSubstr("\"scale\" is F32 [] in it and F64 [] in the program"));
  EXPECT_THAT(refusal("buffer"), HasSubstr("\"flags\" is not in it"));
  EXPECT_THAT(refusal("no buffer"), HasSubstr("\"count\" is in it and not in the program"));
  EXPECT_THAT(refusal("two models"), HasSubstr("\"net.kernel\" is not in it"));
}

TEST(Snapshot, OtherMetricsAreRefusedOnlyWithinAnEpoch) {
  const Job job = SnapshotJob();
  const auto replica = MakeReplica(job);
  SnapshotTaker taker;
  LoopState state = InitialLoopState(job, *replica), restored;
  state.epoch_metric_sums = {1, 2};
  state.epoch_examples = 4;
  const auto within = *taker.Take(*replica, state);
  EXPECT_THAT(std::string(Message(RestoreReplica(within, job, replica.get(), &restored))),
              HasSubstr("was written with other metrics"));
  state.epoch_examples = 0;
  const auto between = *taker.Take(*replica, state);
  EXPECT_TRUE(RestoreReplica(between, job, replica.get(), &restored).ok());
  EXPECT_TRUE(restored.epoch_metric_sums.empty());
}

TEST(Snapshot, AnotherPrecisionStartsWithItsOwnScale) {
  Job job = SnapshotJob();
  const auto replica = MakeReplica(job);
  SnapshotTaker taker;
  auto snapshot = *taker.Take(*replica, InitialLoopState(job, *replica));
  snapshot.state.job = {{"precision", "float32"}};
  LoopState restored;
  job.precision = Precision::kFloat16;
  ASSERT_TRUE(RestoreReplica(snapshot, job, replica.get(), &restored).ok());
  EXPECT_EQ(restored.loss_scaler[0], 65536);
  snapshot.state.job = {{"precision", "float16"}};
  snapshot.state.loss_scaler = {1024, 17};
  ASSERT_TRUE(RestoreReplica(snapshot, job, replica.get(), &restored).ok());
  EXPECT_EQ(restored.loss_scaler, snapshot.state.loss_scaler);
}

}  // namespace
}  // namespace muster
