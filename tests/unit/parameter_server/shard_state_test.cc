#include "chief/parameter_server/shard_state.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstring>

#include "chief/leases/work_table.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/state/callback_record.h"
#include "common/checkpoint/store.h"
#include "common/data/pipeline.h"
#include "common/train/replica/replica.h"
#include "common/train/state/snapshot.h"
#include "muster/callback.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/train/test_program.h"

namespace muster::chief::testing {
namespace {

using muster::testing::Tensors;
using muster::testing::Tensors2;
using muster::testing::TestProgram;
using push_pull::Layout;
using push_pull::MakeLayout;

Job TestJob() {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  job.strategy = StrategyKind::kParameterServer;
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

// A checkpoint of what servers send, in memory.
class Checkpoint {
 public:
  Checkpoint() {
    auto store = checkpoint::Store::Open(files_, {.directory = "checkpoints", .token = "test"}, -1);
    EXPECT_TRUE(store.ok()) << Message(store.status());
    store_ = *std::move(store);
  }
  // Writes like the cutter: parameters through the replica, slots directly into the file.
  checkpoint::Snapshot Write(ShardState* state, const Layout& layout,
                             const std::vector<proto::ChunkContent>& contents, int64_t step) {
    auto slots = SlotsFile::Make(state->slots(), *store_->StageFile(checkpoint::kOptimizerFile));
    EXPECT_TRUE(slots.ok()) << Message(slots.status());
    for (const proto::ChunkContent& content : contents) {
      const absl::Status decoded = state->Decode(layout, content, slots->get());
      EXPECT_TRUE(decoded.ok()) << Message(decoded);
    }
    auto file = (*slots)->Complete();
    EXPECT_TRUE(file.ok() && (*file)->Finish().ok());
    checkpoint::TrainingState at;
    at.step = step;
    checkpoint::Snapshot snapshot = *state->Take(at);
    snapshot.staged = {*file};
    const auto path = store_->Write(snapshot);
    EXPECT_TRUE(path.ok()) << Message(path.status());
    const auto read = checkpoint::ReadCheckpoint(files_, *path, {checkpoint::Bytes::kLeft});
    EXPECT_TRUE(read.ok()) << Message(read.status());
    return *read;
  }

 private:
  checkpoint::MemoryFileSystem files_;
  std::unique_ptr<checkpoint::Store> store_;
};

std::string ValuesOf(const checkpoint::TensorSet& set, const std::string& name) {
  const checkpoint::Tensor* tensor = set.Find(name);
  if (tensor == nullptr) return "";
  std::string bytes(tensor->bytes(), '\0');
  const auto size = static_cast<int64_t>(bytes.size());
  EXPECT_TRUE(checkpoint::ReadTensor(set, *tensor, 0, size, bytes.data()).ok());
  return bytes;
}

// Returns the content of all servers, in the order of the chunks.
std::vector<proto::ChunkContent> EncodeAll(const ShardState& state, const Layout& layout,
                                           int64_t steps, const StateFiles* files) {
  std::vector<proto::ChunkContent> all;
  for (size_t shard = 0; shard < layout.chunks.size(); ++shard)
    for (size_t c = 0; c < layout.chunks[shard].size(); ++c) {
      auto content =
          state.Encode(layout, static_cast<int>(shard), static_cast<int>(c), steps, files);
      EXPECT_TRUE(content.ok()) << Message(content.status());
      all.push_back(*std::move(content));
    }
  return all;
}

// Every element another number.
std::vector<proto::ChunkContent> Scrambled(std::vector<proto::ChunkContent> contents,
                                           const Layout& layout, const ShardState& state) {
  float next = 1;
  const auto fill = [&](std::string* bytes) {
    for (size_t i = 0; i < bytes->size(); i += sizeof next, ++next)
      std::memcpy(bytes->data() + i, &next, sizeof next);
  };
  const size_t optimizers = state.optimizers().size();
  for (proto::ChunkContent& content : contents) {
    const int optimizer = layout.chunks[content.shard()][content.chunk()].optimizer;
    // Adam, momentum, the rest.
    const size_t slots = optimizer == 0 ? 2 : static_cast<size_t>(optimizer) + 1 < optimizers;
    fill(content.mutable_parameters());
    for (size_t s = 0; s < slots; ++s) {
      *content.add_slots() = content.parameters();
      fill(content.mutable_slots(static_cast<int>(s)));
    }
    content.set_updates(optimizer == 0 ? 17 : 23);
  }
  return contents;
}

std::string Dumped(const std::vector<proto::ChunkContent>& contents) {
  std::string text;
  for (const proto::ChunkContent& content : contents) text += content.DebugString();
  return text;
}

Layout SmallChunks(const ShardState& state, int servers) {
  return MakeLayout(state.variables(),
                    {servers, {.kind = push_pull::Partitioner::Kind::kMaxSize, .bytes = 24}, 16});
}

TEST(ShardState, AStateGoesFromServersToFilesAndBack) {
  const Job job = TestJob();
  const auto first = MakeReplica(job, 0), second = MakeReplica(job, 50);
  auto source = *MakeShardState(job, first.get()), target = *MakeShardState(job, second.get());
  const Layout layout = SmallChunks(*source, 2);
  const auto sent = Scrambled(EncodeAll(*source, layout, 0, nullptr), layout, *source);
  Checkpoint written;
  const checkpoint::Snapshot snapshot = written.Write(source.get(), layout, sent, 23);
  EXPECT_EQ(snapshot.state.step, 23);
  for (const int servers : {1, 3, 5}) {
    const auto restored = target->Restore(snapshot);
    ASSERT_TRUE(restored.ok()) << Message(restored.status());
    const StateFiles files = target->TakeFiles();
    EXPECT_EQ(Dumped(EncodeAll(*target, layout, 23, &files)), Dumped(sent));
    // Other servers write the same files.
    const Layout other = SmallChunks(*target, servers);
    const auto moved = EncodeAll(*target, other, 23, &files);
    Checkpoint again;
    const checkpoint::Snapshot theirs = again.Write(source.get(), other, moved, 23);
    for (const auto& [mine, set] : {std::pair(&snapshot.model, &theirs.model),
                                    std::pair(&snapshot.optimizer, &theirs.optimizer)}) {
      ASSERT_EQ(mine->tensors.size(), set->tensors.size());
      for (const checkpoint::Tensor& tensor : mine->tensors)
        EXPECT_EQ(ValuesOf(*mine, tensor.name), ValuesOf(*set, tensor.name)) << tensor.name;
    }
    const auto mine = first->models()[0].parameters, copied = second->models()[0].parameters;
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(at::equal(mine[i].second, copied[i].second)) << mine[i].first;
  }
}

// Files are row-major, for every memory order of workers and servers.
TEST(ShardState, SlotsOfAnotherOrderAreRowMajorInFiles) {
  const Job job = TestJob();
  const ProgramFactory factory = [] {
    auto program = std::make_unique<TestProgram>();
    program->on_build = [](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::arange(5 * 3 * 2 * 4, at::kFloat)
                                     .reshape({5, 3, 2, 4})
                                     .contiguous(at::MemoryFormat::ChannelsLast));
      builder.model("net", self.model);
      builder.optimizer("a", {"net"}, {{"name", "adam"}}, 0.1);
      builder.dataset(Split::kTrain, Tensors2(at::zeros({10, 1}), at::zeros({10})));
    };
    return program;
  };
  auto replica = *Replica::Make(job, factory, at::kCPU);
  auto state = *MakeShardState(job, replica.get());
  ASSERT_FALSE(state->variables()[0].order.empty());
  const Layout layout = SmallChunks(*state, 3);
  auto contents = EncodeAll(*state, layout, 0, nullptr);
  for (proto::ChunkContent& content : contents)
    for (int slot = 0; slot < 2; ++slot) *content.add_slots() = content.parameters();
  Checkpoint written;
  const checkpoint::Snapshot snapshot = written.Write(state.get(), layout, contents, 3);
  const std::string values = ValuesOf(snapshot.model, "w");
  ASSERT_EQ(values.size(), 5 * 3 * 2 * 4 * sizeof(float));
  float second = 0;
  std::memcpy(&second, values.data() + sizeof second, sizeof second);
  EXPECT_EQ(second, 1);
  EXPECT_EQ(ValuesOf(snapshot.optimizer, "a.w.exp_avg"), values);
  EXPECT_EQ(ValuesOf(snapshot.optimizer, "a.w.exp_avg_sq"), values);
  ASSERT_TRUE(state->Restore(snapshot).ok());
  const StateFiles files = state->TakeFiles();
  EXPECT_EQ(Dumped(EncodeAll(*state, layout, 3, &files)), Dumped(contents));
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
  const auto replica = MakeTwoLayers(job, 1);
  auto state = *MakeShardState(job, replica.get());
  for (const int64_t chunk_bytes : {16, 1 << 20}) {
    push_pull::LayoutOptions options;
    options.chunk_bytes = chunk_bytes;
    const Layout layout = MakeLayout(state->variables(), options);
    auto contents = EncodeAll(*state, layout, 500, nullptr);
    for (proto::ChunkContent& content : contents) {
      EXPECT_EQ(content.updates(), 0) << "slots are as the rule begins";
      content.set_updates(content.parameters().size() == 12 ? 3 : 499);
      for (int slot = 0; slot < 2; ++slot) *content.add_slots() = content.parameters();
    }
    contents.back().set_updates(500);  // chunks of one variable: the largest number counts
    Checkpoint written;
    const checkpoint::Snapshot snapshot = written.Write(state.get(), layout, contents, 500);
    ASSERT_TRUE(state->Restore(snapshot).ok());
    const StateFiles files = state->TakeFiles();
    std::map<int64_t, int64_t> elements;  // by number of updates
    for (const proto::ChunkContent& chunk : EncodeAll(*state, layout, 500, &files))
      elements[chunk.updates()] += static_cast<int64_t>(chunk.parameters().size() / 4);
    EXPECT_EQ(elements, (std::map<int64_t, int64_t>{{3, 3}, {500, 24}}));
  }
}

TEST(ShardState, SetsIntegerBuffers) {
  const Job job = TestJob();
  const auto replica = MakeTwoLayers(job, 1);
  auto state = *MakeShardState(job, replica.get());
  push_pull::IntegerBuffers buffers = state->Integers();
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
  proto::ChunkContent content = *state->Encode(layout, 0, 0, 1, nullptr);
  EXPECT_EQ(content.slots_size(), 0) << "as the rule begins";
  EXPECT_TRUE(absl::IsDataLoss(state->Decode(layout, content, nullptr))) << "servers send slots";
  for (int slot = 0; slot < 2; ++slot) *content.add_slots() = content.parameters();
  EXPECT_TRUE(state->Decode(layout, content, nullptr).ok());
  content.mutable_slots(1)->append("x");
  EXPECT_TRUE(absl::IsDataLoss(state->Decode(layout, content, nullptr)));
  content.set_chunk(1000);
  EXPECT_TRUE(absl::IsDataLoss(state->Decode(layout, content, nullptr)));
}

// Nor does the chief need the memory for slots.
TEST(ShardState, SlotsHaveNoMemory) {
  const auto replica = MakeReplica(TestJob(), 0);
  for (const at::Tensor& slot : replica->optimizers()[0].rule->slot(0)) {
    EXPECT_TRUE(slot.is_meta());
  }
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
}  // namespace muster::chief::testing
