#include "chief/shard_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "chief/work_table.h"
#include "common/checkpoint/callback_record.h"
#include "common/data/pipeline.h"
#include "common/train/replica.h"
#include "common/train/snapshot.h"
#include "muster/callback.h"
#include "tests/unit/train/test_program.h"

namespace muster::testing {
namespace {

Job TestJob() {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  return job;
}

// Two optimizers, with and without a step of their own, and a buffer that training changes.
std::unique_ptr<Replica> MakeReplica(const Job& job, double value) {
  const ProgramFactory factory = [value] {
    auto program = std::make_unique<TestProgram>();
    program->second = std::make_shared<Tensors>();
    program->on_build = [value](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::full({5, 3}, value));
      self.model->buffer("mean", at::full({3}, value + 2));
      self.second->parameter("v", at::full({7}, value + 1));
      builder.model("net", self.model);
      builder.model("other", self.second);
      builder.optimizer("a", {"net"}, {{"name", "adam"}}, 0.1);
      builder.optimizer("b", {"other"}, {{"name", "sgd"}, {"momentum", 0.9}}, 0.1);
      builder.dataset(Split::kTrain, Tensors2(at::zeros({10, 1}), at::zeros({10})));
    };
    return program;
  };
  auto replica = Replica::Make(job, factory, at::kCPU);
  EXPECT_TRUE(replica.ok()) << Message(replica.status());
  return *std::move(replica);
}

// Every element another number.
void Scramble(Replica* replica) {
  const at::NoGradGuard no_grad;
  double next = 1;
  for (const at::Tensor& tensor : replica->state()) {
    if (tensor.dim() == 0) {
      tensor.detach().fill_(17);  // an optimizer's step
      continue;
    }
    tensor.detach().copy_(
        at::arange(tensor.numel(), at::kDouble).add(next).reshape(tensor.sizes()));
    next += 100;
  }
}

TEST(ShardState, ChunksHoldTheWholeReplica) {
  const Job job = TestJob();
  const auto from = MakeReplica(job, 0), to = MakeReplica(job, 50);
  auto source = *MakeShardState(job, from.get()), target = *MakeShardState(job, to.get());
  Scramble(from.get());
  for (const int servers : {1, 2, 3, 5}) {
    const Layout layout = MakeLayout(
        source->variables(), {servers, {.kind = Partitioner::Kind::kMaxSize, .bytes = 24}, 16});
    const ShardContents contents = source->Encode(layout, 23);
    for (const auto& chunks : contents)
      for (const proto::ChunkContent& chunk : chunks) {
        const Chunk& place = layout.chunks[chunk.shard()][chunk.chunk()];
        EXPECT_EQ(chunk.updates(), place.optimizer == 0 ? 17 : 23);
        EXPECT_EQ(chunk.slots_size(), place.optimizer == 0 ? 2 : place.optimizer == 1 ? 1 : 0);
      }
    const absl::Status decoded = target->Decode(layout, contents);
    ASSERT_TRUE(decoded.ok()) << Message(decoded);
    const auto mine = from->state(), theirs = to->state();
    ASSERT_EQ(mine.size(), theirs.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_TRUE(at::equal(mine[i], theirs[i])) << i;
      if (theirs[i].dim() > 0) theirs[i].detach().zero_();
    }
  }
}

// Each parameter has its own number of updates, by which its bias is corrected.
std::unique_ptr<Replica> MakeTwoLayers(const Job& job, double value) {
  const ProgramFactory factory = [value] {
    auto program = std::make_unique<TestProgram>();
    program->on_build = [value](TestProgram& self, Builder& builder) {
      self.model->parameter("rare", at::full({3}, value));
      self.model->parameter("w", at::full({8, 3}, value));
      self.model->buffer("count", at::zeros({2}, at::kLong));
      builder.model("net", self.model);
      const Json half = {{"parameters", "w"}, {"learning_rate_scale", 0.5}};
      builder.optimizer("a", {"net"}, {{"name", "adam"}, {"groups", Json::array({half})}}, 0.1);
      builder.dataset(Split::kTrain, Tensors2(at::zeros({10, 1}), at::zeros({10})));
    };
    return program;
  };
  auto replica = Replica::Make(job, factory, at::kCPU);
  EXPECT_TRUE(replica.ok()) << Message(replica.status());
  return *std::move(replica);
}

TEST(ShardState, KeepsTheStepOfEachParameter) {
  const Job job = TestJob();
  const auto from = MakeTwoLayers(job, 1), to = MakeTwoLayers(job, 2);
  auto source = *MakeShardState(job, from.get()), target = *MakeShardState(job, to.get());
  const Optimizer& rule = *from->optimizers()[0].rule;
  ASSERT_EQ(rule.slot_names()[2], "step");
  rule.slot(2)[0].fill_(3);
  rule.slot(2)[1].fill_(500);
  for (const int64_t chunk_bytes : {16, 1 << 20}) {
    LayoutOptions options;
    options.chunk_bytes = chunk_bytes;
    const Layout layout = MakeLayout(source->variables(), options);
    const ShardContents contents = source->Encode(layout, 500);
    std::map<int64_t, int64_t> elements;  // by number of updates
    for (const proto::ChunkContent& chunk : contents[0])
      elements[chunk.updates()] += static_cast<int64_t>(chunk.parameters().size() / 4);
    EXPECT_EQ(elements, (std::map<int64_t, int64_t>{{3, 3}, {500, 24}}));
    const absl::Status decoded = target->Decode(layout, contents);
    ASSERT_TRUE(decoded.ok()) << Message(decoded);
    const Optimizer& theirs = *to->optimizers()[0].rule;
    EXPECT_EQ(theirs.slot(2)[0].item<float>(), 3);
    EXPECT_EQ(theirs.slot(2)[1].item<float>(), 500);
  }
}

TEST(ShardState, SetsIntegerBuffers) {
  const Job job = TestJob();
  const auto replica = MakeTwoLayers(job, 1);
  auto state = *MakeShardState(job, replica.get());
  IntegerBuffers buffers = state->Integers();
  ASSERT_EQ(buffers.size(), 1u);
  EXPECT_EQ(buffers.at("net.count"), std::string(16, '\0'));
  buffers["net.count"][8] = 7;
  ASSERT_TRUE(state->SetIntegers(buffers).ok());
  EXPECT_EQ(replica->models()[0].buffers[0].second[1].item<int64_t>(), 7);
  EXPECT_EQ(state->Integers(), buffers);
  EXPECT_TRUE(absl::IsDataLoss(state->SetIntegers({{"net.count", "short"}})));
  EXPECT_TRUE(absl::IsDataLoss(state->SetIntegers({{"net.other", ""}})));
}

TEST(ShardState, RefusesChunksThatDoNotFit) {
  const Job job = TestJob();
  const auto replica = MakeReplica(job, 0);
  auto state = *MakeShardState(job, replica.get());
  const Layout layout = MakeLayout(state->variables(), {2});
  ShardContents contents = state->Encode(layout, 1);
  contents[0][0].mutable_parameters()->append("x");
  EXPECT_TRUE(absl::IsDataLoss(state->Decode(layout, contents)));
  contents = state->Encode(layout, 0);
  EXPECT_EQ(contents[0][0].slots_size(), 0) << "as the rule begins";
}

// A callback made of a closure, which sees what rates there are.
class Probe final : public Callback {
 public:
  std::function<void(CallbackContext&)> in_step, in_epoch;
  void step_end(CallbackContext& context) override {
    if (in_step) in_step(context);
  }
  void epoch_end(CallbackContext& context) override {
    if (in_epoch) in_epoch(context);
  }
};

std::unique_ptr<Replica> MakeProbed(const Job& job, const Json& rate,
                                    const std::shared_ptr<Probe>& probe) {
  const ProgramFactory factory = [rate, probe] {
    auto program = std::make_unique<TestProgram>();
    program->on_build = [rate, probe](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::full({3}, 1.0));
      builder.model("net", self.model);
      builder.optimizer("a", {"net"}, {{"name", "sgd"}}, rate);
      builder.callback("probe", probe);
      builder.dataset(Split::kTrain, Tensors2(at::zeros({10, 1}), at::zeros({10})));
    };
    return program;
  };
  auto replica = Replica::Make(job, factory, at::kCPU);
  EXPECT_TRUE(replica.ok()) << Message(replica.status());
  return *std::move(replica);
}

TEST(ShardState, CallbacksSeeTheRatesOfWorkers) {
  const Job job = TestJob();
  const std::pair<Json, double> cases[] = {
      {0.1, 0.1},
      {{{"name", "constant"}, {"initial", 0.1}, {"scale_with_replicas", true}}, 0.4},
      {{{"name", "piecewise"}, {"boundary_steps", {5}}, {"values", {0.5, 0.05}}}, 0.05}};
  for (const auto& [rate, expected] : cases) {
    const auto probe = std::make_shared<Probe>();
    double seen = -1;
    probe->in_epoch = [&](CallbackContext& context) { seen = context.learning_rate(); };
    const auto replica = MakeProbed(job, rate, probe);
    auto state = *MakeShardState(job, replica.get());
    checkpoint::CallbackRecord record;
    ShardState::CallbackParts parts;
    parts.workers = 4;
    parts.steps_per_epoch = 3;
    parts.steps = [] { return 9; };
    // Such a rate is the record's alone: where it is gone, so is the rate.
    record.rates["a"] = 0.3;
    ASSERT_TRUE(state->BeginCallbacks(parts, true, &record).ok());
    ASSERT_TRUE(state->Fire(Hook::kEpochEnd, {}).ok());
    EXPECT_EQ(seen, 0.3);
    EXPECT_EQ(state->LearningRate(record, 8), 0.3);
    record.rates.clear();
    ASSERT_TRUE(state->BeginCallbacks(parts, true, &record).ok());
    ASSERT_TRUE(state->Fire(Hook::kEpochEnd, {}).ok());
    EXPECT_DOUBLE_EQ(seen, expected) << rate;
    EXPECT_DOUBLE_EQ(state->LearningRate(record, 8), expected) << rate;
  }
}

TEST(ShardState, SavesTheModelWhereTheChiefHasItsWeights) {
  const Job job = TestJob();
  const auto probe = std::make_shared<Probe>();
  const std::string path = ::testing::TempDir() + "probe.safetensors";
  probe->in_step =
      probe->in_epoch = [&](CallbackContext& context) { context.save_model(path, false); };
  const auto replica = MakeProbed(job, 0.1, probe);
  auto state = *MakeShardState(job, replica.get());
  checkpoint::CallbackRecord record;
  ShardState::CallbackParts parts;
  parts.steps_per_epoch = 3;
  parts.steps = [] { return 1; };
  ASSERT_TRUE(state->BeginCallbacks(parts, false, &record).ok());
  const absl::Status refused = state->Fire(Hook::kStepEnd, {});
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kProgramFailed);
  EXPECT_NE(Message(refused).find("call it in epoch_end or train_end"), std::string::npos)
      << Message(refused);
  const absl::Status saved = state->Fire(Hook::kEpochEnd, {});
  EXPECT_TRUE(saved.ok()) << Message(saved);
  std::remove(path.c_str());
}

TEST(ShardState, KeepsWhatTheRecordSaysOrNothing) {
  const Job job = TestJob();
  const auto replica = MakeProbed(job, 0.1, std::make_shared<Probe>());
  auto state = *MakeShardState(job, replica.get());
  ShardState::CallbackParts parts;
  parts.steps_per_epoch = 3;
  parts.steps = [] { return 6; };
  checkpoint::CallbackRecord record;
  const auto kept_after_begin = [&](int64_t kept, int64_t weights_step) {
    record.kept["probe"] = kept;
    parts.weights_step = weights_step;
    EXPECT_TRUE(state->BeginCallbacks(parts, true, &record).ok());
    return record.kept.contains("probe");
  };
  EXPECT_FALSE(kept_after_begin(3, -1)) << "with the chief before";
  EXPECT_TRUE(kept_after_begin(6, 6)) << "the servers have them";
  EXPECT_TRUE(kept_after_begin(6, -1)) << "since then";
  EXPECT_FALSE(kept_after_begin(3, -1)) << "others";
}

}  // namespace
}  // namespace muster::testing
