// Tests embedding tables in the training loop: the effect of a batch's gradients on rows, for every
// number of replicas that compute them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <cstring>
#include <set>
#include <thread>

#include "common/collective/group/formation.h"
#include "common/train/step/step.h"
#include "tests/unit/train/embedding/embedding_programs.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using collective::Communicator;
using testing::KeptCheckpoints;
using testing::Small;
using testing::Summed;
using testing::TestProgram;
using testing::TheData;

constexpr int64_t kExamples = testing::kEmbeddingExamples;
constexpr int64_t kBatch = 8, kSteps = 12;  // four steps an epoch, the last short

Job MakeJob() {
  Job job;
  job.program = "test";
  job.global_batch_size = kBatch;
  job.epochs = 3;
  return job;
}

void ExpectSame(const checkpoint::TensorSet& got, const checkpoint::TensorSet& want,
                double tolerance) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    const auto &a = got.tensors[i], &b = want.tensors[i];
    ASSERT_EQ(a.name, b.name);
    ASSERT_EQ(a.shape, b.shape) << a.name;
    if (tolerance == 0 || a.dtype != checkpoint::DType::kFloat32) {
      EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << a.name;
      continue;
    }
    for (int64_t e = 0; e < a.elements(); ++e)
      EXPECT_NEAR(reinterpret_cast<const float*>(a.data)[e],
                  reinterpret_cast<const float*>(b.data)[e], tolerance)
          << a.name << " " << e;
  }
}
void ExpectSame(const checkpoint::Snapshot& got, const checkpoint::Snapshot& want,
                double tolerance) {
  ExpectSame(got.model, want.model, tolerance);
  ExpectSame(got.optimizer, want.optimizer, tolerance);
}

testing::RunOptions Options(const Job& job, int replicas, KeptCheckpoints* kept) {
  testing::RunOptions options;
  options.job = job;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.checkpoints = kept;
  return options;
}

std::vector<int64_t> Keys(const checkpoint::Snapshot& snapshot, const std::string& table) {
  const checkpoint::Tensor* keys = snapshot.model.Find(table + ".keys");
  const auto* data = reinterpret_cast<const int64_t*>(keys->data);
  return {data, data + keys->elements()};
}

// Plain SGD, followed by hand with LibTorch's own embedding over all keys.
TEST(Embedding, FollowsADenseTableUnderSgd) {
  EmbeddingOptions options = Small("sgd");
  options.initializer = {{"name", "constant"}, {"scale", 0.25}};
  KeptCheckpoints kept;
  const auto run =
      testing::Run(Options(MakeJob(), 1, &kept), [&](TestProgram& p) { Summed(p, options); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  at::Tensor left = at::full({12, 3}, 0.25, at::kDouble), right = left.clone();
  at::Tensor b = at::zeros({}, at::kDouble);
  std::vector<double> losses;
  for (int64_t s = 0; s < kSteps; ++s) {
    const int64_t begin = s % 4 * kBatch, end = std::min(begin + kBatch, kExamples);
    const at::Tensor keys = TheData().keys.slice(0, begin, end) + 6;
    const at::Tensor y = TheData().y.slice(0, begin, end).to(at::kDouble);
    const at::Tensor error = left.index_select(0, keys.select(1, 0)).sum(1) +
                             right.index_select(0, keys.select(1, 1)).sum(1) + b - y;
    losses.push_back(error.square().mean().item<double>());
    const at::Tensor each = (2 * error / error.size(0)).unsqueeze(1).expand({-1, 3}).contiguous();
    b = b - 0.05 * 2 * error.mean();
    left.index_add_(0, keys.select(1, 0), each, -0.1);
    right.index_add_(0, keys.select(1, 1), each, -0.1);
  }
  ASSERT_EQ(run.recorder.losses().size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(run.recorder.losses()[i], losses[i], 2e-6) << "step " << i + 1;
  // The keys that were trained, and none that was only evaluated.
  const at::Tensor trained = TheData().keys.select(1, 0).contiguous();
  const int64_t* key = trained.const_data_ptr<int64_t>();
  EXPECT_THAT(Keys(kept.kept.back(), "left"),
              ::testing::ElementsAreArray(std::set<int64_t>(key, key + kExamples)));
}

class EmbeddingOver : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, EmbeddingOver,
                         ::testing::Values("sgd", "adagrad", "adam", "rmsprop", "ftrl"));

TEST_P(EmbeddingOver, ReplicasAndMicroBatchesEqualOne) {
  KeptCheckpoints one;
  const auto set_up = [](TestProgram& p) { Summed(p, Small(GetParam())); };
  const auto whole = testing::Run(Options(MakeJob(), 1, &one), set_up);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {5, 1}, {1, 3}, {2, 2}}) {
    SCOPED_TRACE(::testing::Message() << replicas << " replicas, " << accumulate);
    KeptCheckpoints kept;
    Job job = MakeJob();
    job.accumulate_steps = accumulate;
    const auto run = testing::Run(Options(job, replicas, &kept), set_up);
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (size_t i = 0; i < kSteps; ++i)
      EXPECT_NEAR(run.recorder.losses()[i], whole.recorder.losses()[i], 1e-5);
    EXPECT_NEAR(run.recorder.Find("validation", 2)->metrics.at("loss"),
                whole.recorder.Find("validation", 2)->metrics.at("loss"), 1e-4);
    ExpectSame(kept.kept.back(), one.kept.back(), 1e-4);
  }
}

// ---- Bags

// Three pools of two keys each: by weights that are learned and with padding, by offsets, and
// without a key that comes often.
std::vector<at::Tensor> LookUpBags(TestProgram& self, auto& step, const at::Tensor& keys) {
  const at::Tensor weights = at::sigmoid((*self.model)["w"]).expand_as(keys);
  const at::Tensor flat = keys.reshape({-1});
  const EmbeddingHandle left = self.embeddings["left"], right = self.embeddings["right"];
  return step.lookup(std::vector<TableBags>{
      {left, {.keys = keys, .weights = weights, .padding = 3}, Pooling::kMean},
      {right, {.keys = flat, .offsets = at::arange(0, flat.numel(), 2)}, Pooling::kSum},
      {left, {.keys = keys, .padding = -2}, Pooling::kMean}});
}

void Pooled(TestProgram& p, EmbeddingOptions options) {
  Summed(p, options);
  const auto build = p.on_build;
  p.on_build = [build](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::tensor({0.5f, -0.5f}));
    build(self, builder);
  };
  const auto predict = [](TestProgram& self, auto& step, const at::Tensor& keys) {
    const std::vector<at::Tensor> pooled = LookUpBags(self, step, keys);
    return pooled[0].sum(1) + pooled[1].sum(1) - pooled[2].select(1, 0) + (*self.model)["b"];
  };
  p.on_step = [predict](TestProgram& self, Step& step, const data::Batch& batch) {
    step.minimize(self.optimizers["sgd"], (predict(self, step, batch[0]) - batch[1]).square());
  };
  p.on_eval = [predict](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss((predict(self, evaluation, batch[0]) - batch[1]).square());
  };
}

at::Tensor EmbeddingBag(const at::Tensor& table, const at::Tensor& keys, int64_t mode,
                        const std::optional<at::Tensor>& weights, std::optional<int64_t> padding) {
  return std::get<0>(at::embedding_bag(table, keys.reshape({-1}), at::arange(0, keys.numel(), 2),
                                       false, mode, false, weights, false, padding));
}

// Followed with LibTorch's own EmbeddingBag over all keys and its own backward pass.
TEST(Embedding, BagsFollowADenseEmbeddingBag) {
  EmbeddingOptions options = Small("sgd");
  options.initializer = {{"name", "constant"}, {"scale", 0.25}};
  KeptCheckpoints kept;
  const auto run =
      testing::Run(Options(MakeJob(), 1, &kept), [&](TestProgram& p) { Pooled(p, options); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  at::Tensor left = at::full({12, 3}, 0.25, at::kDouble), right = left.clone();
  at::Tensor b = at::zeros({}, at::kDouble), w = at::tensor({0.5, -0.5}, at::kDouble);
  for (int64_t s = 0; s < kSteps; ++s) {
    const int64_t begin = s % 4 * kBatch, end = std::min(begin + kBatch, kExamples);
    const at::Tensor keys = TheData().keys.slice(0, begin, end) + 6;
    const at::Tensor y = TheData().y.slice(0, begin, end).to(at::kDouble);
    for (at::Tensor* t : {&left, &right, &b, &w}) t->set_requires_grad(true);
    const at::Tensor weights = at::sigmoid(w).expand_as(keys).contiguous();
    const at::Tensor total = (weights * keys.ne(9)).sum(1, true);
    const at::Tensor mean =
        EmbeddingBag(left, keys, 0, weights.reshape({-1}), 9) / total.masked_fill(total.eq(0), 1);
    const at::Tensor loss = (mean.sum(1) + EmbeddingBag(right, keys, 0, {}, {}).sum(1) -
                             EmbeddingBag(left, keys, 1, {}, 4).select(1, 0) + b - y)
                                .square()
                                .mean();
    EXPECT_NEAR(run.recorder.losses()[s], loss.item<double>(), 5e-6) << "step " << s + 1;
    loss.backward();
    for (at::Tensor* t : {&left, &right}) *t = (*t - 0.1 * t->grad()).detach();
    for (at::Tensor* t : {&b, &w}) *t = (*t - 0.05 * t->grad()).detach();
  }
  const checkpoint::Tensor* saved = kept.kept.back().model.Find("w");
  ASSERT_NE(saved, nullptr);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(reinterpret_cast<const float*>(saved->data)[i], w[i].item<double>(), 1e-5);
}

TEST_P(EmbeddingOver, ReplicasAndMicroBatchesPoolAsOne) {
  KeptCheckpoints one;
  const auto set_up = [](TestProgram& p) { Pooled(p, Small(GetParam())); };
  const auto whole = testing::Run(Options(MakeJob(), 1, &one), set_up);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  // With seven, some have nothing of the last batch of an epoch.
  for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {7, 1}, {1, 3}, {2, 2}}) {
    SCOPED_TRACE(::testing::Message() << replicas << " replicas, " << accumulate);
    KeptCheckpoints kept;
    Job job = MakeJob();
    job.accumulate_steps = accumulate;
    const auto run = testing::Run(Options(job, replicas, &kept), set_up);
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (size_t i = 0; i < kSteps; ++i)
      EXPECT_NEAR(run.recorder.losses()[i], whole.recorder.losses()[i], 1e-5);
    EXPECT_NEAR(run.recorder.Find("validation", 2)->metrics.at("loss"),
                whole.recorder.Find("validation", 2)->metrics.at("loss"), 1e-4);
    ExpectSame(kept.kept.back(), one.kept.back(), 1e-4);
  }
}

// One of several processes that stay: each has a Trainer of its own.
class Rank : public Membership {
 public:
  Rank(int rank, int replicas, std::vector<std::shared_ptr<Communicator>> mine)
      : rank_(rank), replicas_(replicas), mine_(std::move(mine)) {}
  absl::StatusOr<Generation> NextGeneration(int64_t) override {
    Generation generation;
    generation.id = 1;
    generation.rank = rank_;
    generation.replicas_per_rank = {replicas_, replicas_};
    generation.replicas_on_host = 2 * replicas_;
    generation.replicas = std::move(mine_);
    return generation;
  }
  void SetPhase(Phase, int64_t) override {}
  absl::Status Explain(const absl::Status& local) override { return local; }
  void ReportFailure(const absl::Status&) override {}
  void RequestStop() override {}
  bool StopRequested() const override { return false; }
  absl::Status Finish(int64_t, const absl::Status& outcome) override { return outcome; }

 private:
  const int rank_, replicas_;
  std::vector<std::shared_ptr<Communicator>> mine_;
};

// Two processes; rank 0 saves, and begins with `restore` where there is one.
void RunTwoProcesses(int replicas, const checkpoint::Snapshot* restore, KeptCheckpoints* kept) {
  auto all = collective::MakeThreadCommunicators(2 * replicas, std::chrono::seconds(20));
  std::vector<absl::Status> outcomes(2, absl::UnknownError("not run"));
  std::vector<std::thread> processes;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::shared_ptr<Communicator>> mine;
    for (int i = 0; i < replicas; ++i) mine.push_back(std::move(all[rank * replicas + i]));
    auto membership = std::make_shared<Rank>(rank, replicas, std::move(mine));
    TrainerOptions options;
    options.job = MakeJob();
    options.devices.assign(replicas, c10::Device(at::kCPU));
    options.checkpoints = rank == 0 ? kept : nullptr;
    options.factory = [] {
      auto program = std::make_unique<TestProgram>();
      Summed(*program, Small("adam"));
      return program;
    };
    auto trainer = Trainer::Make(std::move(options));
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    if (rank == 0 && restore != nullptr) {
      ASSERT_TRUE((*trainer)->Restore(*restore).ok());
    }
    processes.emplace_back(
        [rank, &outcomes, membership, t = std::shared_ptr<Trainer>(*std::move(trainer))] {
          outcomes[rank] = t->Run(membership.get());
        });
  }
  for (std::thread& process : processes) process.join();
  // They compared their tables at the end of each epoch.
  for (const absl::Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome;
}

TEST(Embedding, TwoProcessesEqualOne) {
  KeptCheckpoints one;
  ASSERT_TRUE(testing::Run(Options(MakeJob(), 1, &one), [](TestProgram& p) {
                Summed(p, Small("adam"));
              }).status.ok());
  for (const int replicas : {1, 2}) {
    KeptCheckpoints two;
    RunTwoProcesses(replicas, nullptr, &two);
    ASSERT_FALSE(two.kept.empty());
    ExpectSame(two.kept.back(), one.kept.back(), 1e-4);
  }
}

TEST(Embedding, WhoJoinsIsGivenTheTables) {
  KeptCheckpoints whole;
  whole.wanted = [](const SaveMoment& moment) { return moment.step == 5; };
  RunTwoProcesses(2, nullptr, &whole);
  ASSERT_EQ(whole.kept.size(), 2u);
  KeptCheckpoints rest;
  RunTwoProcesses(2, &whole.kept.front(), &rest);  // the other process begins with nothing
  ASSERT_FALSE(rest.kept.empty());
  ExpectSame(rest.kept.back(), whole.kept.back(), 0);
}

// A large table travels in several pieces.
TEST(Embedding, ManyRowsAreGivenToo) {
  KeptCheckpoints first;
  Job job = MakeJob();
  job.epochs = 1;
  job.max_steps = 1;
  const auto set_up = [](TestProgram& p) {
    Summed(p, Small("adam"));
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      build(self, builder);
      EmbeddingOptions wide;
      wide.width = 1000;
      wide.optimizer = "adam";
      self.embeddings["wide"] = builder.embedding("wide", wide);
    };
    const auto step = p.on_step;
    p.on_step = [step](TestProgram& self, Step& s, const data::Batch& batch) {
      const at::Tensor many = s.lookup(self.embeddings["wide"], at::arange(1000)).sum() * 1e-6;
      s.add_loss(many.expand({batch[0].size(0)}));
      step(self, s, batch);
    };
  };
  ASSERT_TRUE(testing::Run(Options(job, 1, &first), set_up).status.ok());
  ASSERT_EQ(Keys(first.kept.back(), "wide").size(), 1000u);
  // Its tables' digests are compared when the job ends.
  auto all = collective::MakeThreadCommunicators(2, std::chrono::seconds(20));
  std::vector<absl::Status> outcomes(2);
  std::vector<std::thread> processes;
  KeptCheckpoints kept;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back([&, rank] {
      TrainerOptions options;
      options.job = job;
      options.job.max_steps = 2;
      options.devices.assign(1, c10::Device(at::kCPU));
      options.checkpoints = rank == 0 ? &kept : nullptr;
      options.factory = [&] {
        auto program = std::make_unique<TestProgram>();
        set_up(*program);
        return program;
      };
      auto trainer = Trainer::Make(std::move(options));
      outcomes[rank] = trainer.status();
      if (!trainer.ok()) return;
      if (rank == 0) outcomes[rank] = (*trainer)->Restore(first.kept.back());
      std::vector<std::shared_ptr<Communicator>> mine;
      mine.push_back(std::move(all[rank]));
      Rank membership(rank, 1, std::move(mine));
      outcomes[rank] = (*trainer)->Run(&membership);
    });
  }
  for (std::thread& process : processes) process.join();
  for (const absl::Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(Keys(kept.kept.back(), "wide").size(), 1000u);
}

// ---- Limits and types

EmbeddingOptions Limited(const std::string& eviction) {
  EmbeddingOptions options = Small("rowwise_adagrad");
  options.max_rows = 16;  // one of each shard, and 12 keys
  options.eviction = eviction;
  options.admit_after = 2;
  return options;
}

// The set of rows depends on the updates alone, which are the same.
TEST(Embedding, ReplicasEvictAndAdmitTheSameRows) {
  for (const char* eviction : {"oldest", "least_recent", "least_frequent"}) {
    const auto set_up = [&](TestProgram& p) { Summed(p, Limited(eviction)); };
    KeptCheckpoints one, two;
    ASSERT_TRUE(testing::Run(Options(MakeJob(), 1, &one), set_up).status.ok());
    ASSERT_TRUE(testing::Run(Options(MakeJob(), 2, &two), set_up).status.ok());
    ExpectSame(two.kept.back(), one.kept.back(), 1e-4);
    EXPECT_LT(Keys(one.kept.back(), "left").size(), 12u) << "some went";
    const std::string column =
        eviction == std::string("oldest") ? "left.created_at" : "left.updated_at";
    const checkpoint::Tensor* saved = one.kept.back().optimizer.Find(column);
    ASSERT_NE(saved, nullptr);
    EXPECT_EQ(saved->dtype, checkpoint::DType::kInt64);
    EXPECT_EQ(saved->shape.size(), 1u);
    EXPECT_EQ(one.kept.back().optimizer.Find("left.sum")->shape[1], 1) << "one number a row";
  }
}

// With all that evictions go by.
TEST(Embedding, ARestoredRunEvictsAsTheWholeOne) {
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    EmbeddingOptions options = Limited("least_frequent");
    options.admit_after = 1;
    options.dtype = dtype;
    const auto set_up = [&](TestProgram& p) { Summed(p, options); };
    KeptCheckpoints whole, rest;
    whole.wanted = [](const SaveMoment& moment) { return moment.step == 5; };
    ASSERT_TRUE(testing::Run(Options(MakeJob(), 1, &whole), set_up).status.ok());
    ASSERT_EQ(whole.kept.size(), 2u);
    testing::RunOptions again = Options(MakeJob(), 1, &rest);
    again.restore = &whole.kept.front();
    ASSERT_TRUE(testing::Run(again, set_up).status.ok());
    ExpectSame(rest.kept.back(), whole.kept.back(), 0);
  }
}

// A cap that comes or goes with the job does not keep a checkpoint from being read.
TEST(Embedding, ACapMayComeAndGoBetweenRuns) {
  KeptCheckpoints free, capped, again;
  free.wanted = capped.wanted = [](const SaveMoment& moment) { return moment.step == 5; };
  const auto set_up = [](TestProgram& p) { Summed(p, Small()); };
  ASSERT_TRUE(testing::Run(Options(MakeJob(), 1, &free), set_up).status.ok());
  testing::RunOptions options = Options(MakeJob(), 1, &capped);
  options.job.embeddings = {{"*", {{"max_rows", 16}}}};
  options.restore = &free.kept.front();
  ASSERT_TRUE(testing::Run(options, set_up).status.ok());
  EXPECT_LT(Keys(capped.kept.back(), "left").size(), Keys(free.kept.back(), "left").size());
  ASSERT_NE(capped.kept.back().optimizer.Find("left.updated_at"), nullptr);
  options = Options(MakeJob(), 1, &again);
  options.job.epochs = 4;
  options.restore = &capped.kept.back();
  ASSERT_TRUE(testing::Run(options, set_up).status.ok());
  EXPECT_EQ(again.kept.back().optimizer.Find("left.updated_at"), nullptr);
}

}  // namespace
}  // namespace muster
