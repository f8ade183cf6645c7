// Embedding tables in the training loop: what a batch's gradients do to rows, whoever computed
// them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <cstring>
#include <set>
#include <thread>

#include "common/collective/formation.h"
#include "common/train/step.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::TestProgram;

constexpr int64_t kExamples = 30, kBatch = 8, kSteps = 12;  // four steps an epoch, the last short

struct Data {
  at::Tensor keys, y;
};
const Data& TheData() {
  static const Data data = [] {
    at::manual_seed(3);
    const at::Tensor keys = at::randint(-6, 6, {kExamples, 2}, at::kLong);
    return Data{keys, keys.sum(1).to(at::kFloat) * 0.3f + 0.1f * at::randn({kExamples})};
  }();
  return data;
}

// y is the sum of two rows' sums, of one table or the other, and a bias.
void Summed(TestProgram& p, EmbeddingOptions options) {
  p.on_build = [options](TestProgram& self, Builder& builder) {
    self.model->parameter("b", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.05);
    self.embeddings["left"] = builder.embedding("left", options);
    self.embeddings["right"] = builder.embedding("right", options);
    builder.dataset(Split::kTrain, testing::Tensors2(TheData().keys, TheData().y));
    builder.dataset(Split::kValidation, testing::Tensors2(TheData().keys + 4, TheData().y));
  };
  const auto predict = [](TestProgram& self, auto& step, const at::Tensor& keys) {
    return step.lookup(self.embeddings["left"], keys.select(1, 0)).sum(1) +
           step.lookup(self.embeddings["right"], keys.select(1, 1)).sum(1) + (*self.model)["b"];
  };
  p.on_step = [predict](TestProgram& self, Step& step, const data::Batch& batch) {
    step.minimize(self.optimizers["sgd"], (predict(self, step, batch[0]) - batch[1]).square());
  };
  p.on_eval = [predict](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss((predict(self, evaluation, batch[0]) - batch[1]).square());
  };
}

EmbeddingOptions Small(Json optimizer = "adagrad") {
  EmbeddingOptions options;
  options.width = 3;
  options.optimizer = std::move(optimizer);
  options.learning_rate = 0.1;
  return options;
}

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
  // Those that were trained, and none that was only evaluated.
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
  Rank(int rank, int replicas, std::vector<std::unique_ptr<Communicator>> mine)
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
  std::vector<std::unique_ptr<Communicator>> mine_;
};

// Two processes; rank 0 saves, and begins with `restore` where there is one.
void RunTwoProcesses(int replicas, const checkpoint::Snapshot* restore, KeptCheckpoints* kept) {
  auto all = MakeThreadCommunicators(2 * replicas, std::chrono::seconds(20));
  std::vector<absl::Status> outcomes(2, absl::UnknownError("not run"));
  std::vector<std::thread> processes;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::unique_ptr<Communicator>> mine;
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
  auto all = MakeThreadCommunicators(2, std::chrono::seconds(20));
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
      std::vector<std::unique_ptr<Communicator>> mine;
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

// What rows there are depends on the updates alone, which are the same.
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

// ---- One step

class OneStep : public ::testing::Test {
 protected:
  OneStep() {
    job_.program = "test";
    job_.global_batch_size = 4;
    communicators_ = MakeThreadCommunicators(1, std::chrono::seconds(5));
  }
  void Make(std::function<void(TestProgram&)> set_up) {
    auto replica = Replica::Make(
        job_,
        [&] {
          auto program = std::make_unique<TestProgram>();
          set_up(*program);
          program_ = program.get();
          return program;
        },
        c10::Device(at::kCPU));
    status_ = replica.status();
    if (!status_.ok()) return;
    replica_ = *std::move(replica);
    ASSERT_TRUE(replica_->Attach(communicators_[0].get(), {4, 4}, job_.collective).ok());
    runner_ = std::make_unique<StepRunner>(replica_.get(), communicators_[0].get(), job_,
                                           StepRunnerOptions{.global_batch_size = 4});
  }
  absl::Status Run(const StepRunner::Body& body) {
    const data::Batch batch = {TheData().keys.slice(0, 0, 4), TheData().y.slice(0, 0, 4)};
    StepPlan plan;
    plan.steps_done = steps_;
    plan.global_examples = 4;
    const auto result = runner_->Run(plan, batch, 4, body);
    if (result.ok()) ++steps_;
    return result.status();
  }
  std::vector<float> Row(int table, uint64_t key) {
    std::vector<float> row(3);
    EXPECT_TRUE(replica_->tables().table(table).Peek({&key, 1}, row).ok());
    return row;
  }

  Job job_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  TestProgram* program_ = nullptr;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<StepRunner> runner_;
  absl::Status status_;
  int64_t steps_ = 0;
};

TEST_F(OneStep, KeysThatComeTwiceAreOneUpdate) {
  Make([](TestProgram& p) { Summed(p, Small("adagrad")); });
  const std::vector<float> before = Row(0, 7);
  at::Tensor rows;
  ASSERT_TRUE(Run([&](Step& step, const data::Batch&) {
                rows = step.lookup(program_->embeddings["left"], at::tensor({7, 8, 7, 7}));
                // More lookups of the same key, of another shape and integer type.
                const at::Tensor again = step.lookup(program_->embeddings["left"],
                                                     at::tensor({7}, at::kInt).reshape({1, 1}));
                EXPECT_EQ(again.sizes(), at::IntArrayRef({1, 1, 3}));
                EXPECT_TRUE(at::equal(again.reshape({3}), rows[0]));
                step.lookup(program_->embeddings["left"], at::tensor({9}));  // read, and no more
                step.minimize(program_->optimizers["sgd"],
                              rows.sum(1) + again.sum() + (*program_->model)["b"]);
              }).ok());
  // Three times a quarter, and four quarters more.
  const float gradient = 3 * 0.25f + 1;
  const std::vector<float> after = Row(0, 7);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(after[i], before[i] - 0.1f * gradient / std::sqrt(0.1f + gradient * gradient),
                1e-6);
  }
  EXPECT_EQ(replica_->tables().table(0).size(), 2) << "the row that was only read is not made";
  EXPECT_EQ(replica_->tables().table(1).size(), 0);
}

TEST_F(OneStep, ThatFailsLeavesTheTablesAlone) {
  Make([](TestProgram& p) { Summed(p, Small("adam")); });
  const auto step = [&](Step& step, const data::Batch& batch) {
    program_->on_step(*program_, step, batch);
  };
  ASSERT_TRUE(Run(step).ok());
  const uint64_t digest = replica_->tables().Digest();
  const absl::Status failed = Run([&](Step& s, const data::Batch& batch) {
    step(s, batch);
    throw std::runtime_error("no more");
  });
  EXPECT_THAT(std::string(Message(failed)), HasSubstr("no more"));
  EXPECT_EQ(replica_->tables().Digest(), digest);
}

TEST_F(OneStep, SeveralMinimizeCallsAddUp) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  const std::vector<float> before = Row(0, 1);
  ASSERT_TRUE(
      Run([&](Step& step, const data::Batch&) {
        const at::Tensor rows = step.lookup(program_->embeddings["left"], at::tensor({1, 2, 3, 4}));
        const at::Tensor b = (*program_->model)["b"];
        step.minimize(program_->optimizers["sgd"], rows.sum(1) + b);
        step.minimize(program_->optimizers["sgd"], 2 * rows.sum(1) + b);
      }).ok());
  EXPECT_NEAR(Row(0, 1)[0], before[0] - 0.1f * 0.75f, 1e-6);
}

TEST_F(OneStep, RefusesKeysThatAreNone) {
  Make([](TestProgram& p) { Summed(p, Small()); });
  const auto look_up = [&](EmbeddingHandle table, at::Tensor keys) {
    return std::string(
        Message(Run([&](Step& step, const data::Batch&) { step.lookup(table, keys); })));
  };
  EXPECT_THAT(look_up(program_->embeddings["left"], at::ones({2})),
              HasSubstr("lookup(\"left\") needs integer keys, and got Float"));
  EXPECT_THAT(look_up({}, at::ones({2}, at::kLong)), HasSubstr("did not declare"));
}

TEST_F(OneStep, BagsMayBeEmpty) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  ASSERT_TRUE(
      Run([&](Step& step, const data::Batch&) {
        const EmbeddingHandle left = program_->embeddings["left"];
        const at::Tensor rows = step.lookup(left, at::tensor({1, 2, 3}));
        const at::Tensor ragged = at::tensor({1, 2, 3});
        for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
          const at::Tensor bags =
              step.lookup(left, {.keys = ragged, .offsets = at::tensor({0, 0, 2, 3, 3})}, pooling);
          ASSERT_EQ(bags.sizes(), at::IntArrayRef({5, 3}));
          const float count = pooling == Pooling::kSum ? 1 : 2;
          for (const int64_t empty : {0, 3, 4}) EXPECT_TRUE(at::equal(bags[empty], at::zeros({3})));
          EXPECT_TRUE(at::allclose(bags[1], (rows[0] + rows[1]) / count));
          EXPECT_TRUE(at::equal(bags[2], rows[2]));
          const at::Tensor all_padding = at::full({2, 3}, -1, at::kLong);
          EXPECT_TRUE(at::equal(step.lookup(left, {.keys = all_padding, .padding = -1}, pooling),
                                at::zeros({2, 3})));
          const at::Tensor none = at::empty({0}, at::kLong);
          EXPECT_EQ(step.lookup(left, {.keys = none, .offsets = none}, pooling).sizes(),
                    at::IntArrayRef({0, 3}));
          EXPECT_EQ(step.lookup(left, {.keys = at::empty({0, 4}, at::kInt)}, pooling).sizes(),
                    at::IntArrayRef({0, 3}));
          EXPECT_TRUE(at::equal(step.lookup(left, {.keys = at::empty({2, 0}, at::kInt)}, pooling),
                                at::zeros({2, 3})));
        }
      }).ok());
}

TEST_F(OneStep, AMeanDividesByTheWeights) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  ASSERT_TRUE(Run([&](Step& step, const data::Batch&) {
                const EmbeddingHandle left = program_->embeddings["left"];
                const at::Tensor rows = step.lookup(left, at::tensor({1, 2}));
                const at::Tensor weights =
                    at::tensor({1.f, 3.f, 1.f, -1.f}).reshape({2, 2}).requires_grad_();
                const at::Tensor mean = step.lookup(
                    left, {.keys = at::tensor({1, 2, 1, 2}).reshape({2, 2}), .weights = weights},
                    Pooling::kMean);
                EXPECT_TRUE(at::allclose(mean[0], (rows[0] + 3 * rows[1]) / 4));
                EXPECT_TRUE(at::equal(mean[1], at::zeros({3}))) << "weights that add up to 0";
                mean.sum().backward();
                const at::Tensor gradient = (rows[0] - mean[0]).sum() / 4;
                EXPECT_NEAR(weights.grad()[0][0].item<float>(), gradient.item<float>(), 1e-6);
                EXPECT_TRUE(at::equal(weights.grad()[1], at::zeros({2})));
              }).ok());
}

TEST_F(OneStep, SeveralTablesAtOnceAreAsOneByOne) {
  Make([](TestProgram& p) { Summed(p, Small("sgd")); });
  std::vector<at::Tensor> rows, again;
  const EmbeddingHandle left = program_->embeddings["left"], right = program_->embeddings["right"];
  const std::vector<TableKeys> keys = {{left, at::tensor({5, 6})},
                                       {right, at::tensor({5, 7, 5})},
                                       {left, at::tensor({6, 8}).reshape({1, 2})}};
  ASSERT_TRUE(Run([&](Step& step, const data::Batch&) {
                rows = step.lookup(keys);
                for (const TableKeys& of : keys) again.push_back(step.lookup(of.table, of.keys));
                step.minimize(program_->optimizers["sgd"],
                              (rows[0].sum() + rows[1].sum() + rows[2].sum()).expand({4}) +
                                  (*program_->model)["b"]);
              }).ok());
  ASSERT_EQ(rows.size(), 3u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(at::equal(rows[i], again[i])) << i;
  EXPECT_EQ(rows[2].sizes(), at::IntArrayRef({1, 2, 3}));
  const auto moved = [&](int table, uint64_t key, const at::Tensor& before) {
    return before[0].item<float>() - Row(table, key)[0];
  };
  EXPECT_NEAR(moved(0, 5, rows[0][0]), 0.1f, 1e-6);
  EXPECT_NEAR(moved(0, 6, rows[0][1]), 0.2f, 1e-6) << "of both lookups";
  EXPECT_NEAR(moved(1, 5, rows[1][0]), 0.2f, 1e-6);
}

TEST_F(OneStep, RefusesBagsThatAreNone) {
  Make([](TestProgram& p) { Summed(p, Small()); });
  const auto look_up = [&](Bags bags) {
    return std::string(Message(Run([&](Step& step, const data::Batch&) {
      step.lookup(program_->embeddings["left"], bags, Pooling::kSum);
    })));
  };
  const at::Tensor keys = at::arange(5);
  const auto at_offsets = [&](at::Tensor offsets) {
    return look_up({.keys = keys, .offsets = std::move(offsets)});
  };
  EXPECT_THAT(look_up({}), HasSubstr("lookup(\"left\") needs integer keys, and got an undefined"));
  EXPECT_THAT(look_up({.keys = at::ones({2, 2})}), HasSubstr("needs integer keys, and got Float"));
  EXPECT_THAT(look_up({.keys = keys}),
              HasSubstr("lookup(\"left\") needs keys [bags, length], or keys [n] with offsets, and "
                        "got keys [5] without offsets"));
  EXPECT_THAT(look_up({.keys = at::ones({2, 2}, at::kLong), .offsets = at::tensor({0, 2})}),
              HasSubstr("needs keys [n] where there are offsets, and got [2, 2]"));
  EXPECT_THAT(at_offsets(at::tensor({0.f, 2.f})),
              HasSubstr("needs integer offsets [bags], and got Float [2]"));
  EXPECT_THAT(at_offsets(at::empty({0}, at::kLong)),
              HasSubstr("got 5 keys and no offsets: no bag has them"));
  EXPECT_THAT(at_offsets(at::tensor({1, 2})), HasSubstr("offsets must begin with 0, where the "
                                                        "first bag does, and begin with 1"));
  EXPECT_THAT(at_offsets(at::tensor({0, 3, 2})),
              HasSubstr("offsets must not descend, and bag 2 begins at 2, the one before at 3"));
  EXPECT_THAT(at_offsets(at::tensor({0, 6})), HasSubstr("offset 6 of bag 1 is beyond the 5 keys"));
  const at::Tensor square = keys.slice(0, 0, 4).reshape({2, 2});
  EXPECT_THAT(look_up({.keys = square, .weights = at::ones({4})}),
              HasSubstr("needs a weight for each key, [2, 2], and got weights [4]"));
  EXPECT_THAT(look_up({.keys = square, .weights = at::ones({2, 2}, at::kLong)}),
              HasSubstr("needs floating-point weights, and got Long"));
}

TEST_F(OneStep, TheJobReplacesATablesOptimizerByItsName) {
  job_.optimizer = {{"left", {{"name", "ftrl"}, {"l1", 0.5}}}};
  job_.learning_rate = {{"right", 0.75}};
  Make([](TestProgram& p) { Summed(p, Small()); });
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(std::get<FtrlSpec>(replica_->embeddings()[0].options.rule).l1, 0.5);
  EXPECT_EQ(replica_->embeddings()[1].options.rule.index(), RuleSpec(AdagradSpec()).index());
  EXPECT_EQ(replica_->embeddings()[0].schedule->At(0), 0.1);
  EXPECT_EQ(replica_->embeddings()[1].schedule->At(0), 0.75);
  EXPECT_NE(replica_->embeddings()[0].options.seed, replica_->embeddings()[1].options.seed);
}

TEST_F(OneStep, TheJobReplacesATablesLimitsAndTypes) {
  job_.embeddings = {{"*", {{"max_rows", 100}, {"eviction", "oldest"}}},
                     {"left", {{"max_rows", 7}, {"dtype", "bfloat16"}, {"initializer", "zeros"}}}};
  Make([](TestProgram& p) { Summed(p, Small()); });
  ASSERT_TRUE(status_.ok()) << status_;
  const EmbeddingTable::Options& left = replica_->embeddings()[0].options;
  const EmbeddingTable::Options& right = replica_->embeddings()[1].options;
  EXPECT_EQ(left.limits.max_rows, 7);
  EXPECT_EQ(right.limits.max_rows, 100);
  EXPECT_EQ(left.limits.eviction, Eviction::kOldest);
  EXPECT_EQ(left.type, RowType::kBFloat16);
  EXPECT_EQ(right.type, RowType::kFloat32);
  EXPECT_EQ(left.initializer.kind, Initializer::Kind::kZeros);
  const auto refusal = [&](Json embeddings) {
    job_.embeddings = std::move(embeddings);
    Make([](TestProgram& p) { Summed(p, Small()); });
    EXPECT_EQ(ExitCodeOf(status_), ExitCode::kConfiguration);
    return std::string(Message(status_));
  };
  EXPECT_THAT(refusal({{"lefd", {{"max_rows", 7}}}}),
              HasSubstr("embeddings.lefd names no embedding table of this program, did you mean "
                        "\"left\"?"));
  EXPECT_THAT(refusal({{"left", {{"max_row", 7}}}}), HasSubstr("did you mean \"max_rows\""));
  EXPECT_THAT(refusal({{"left", 7}}), HasSubstr("embeddings.left must be an object"));
}

TEST_F(OneStep, BadDeclarationsAreRefused) {
  const auto refusal = [&](EmbeddingOptions options, const std::string& name = "third") {
    Make([&](TestProgram& p) {
      Summed(p, Small());
      const auto build = p.on_build;
      p.on_build = [=](TestProgram& self, Builder& builder) {
        build(self, builder);
        builder.embedding(name, options);
      };
    });
    return std::string(Message(status_));
  };
  EXPECT_THAT(refusal(Small(), "left"), HasSubstr("two embeddings are named \"left\""));
  EXPECT_THAT(refusal(Small(), "sgd"), HasSubstr("an optimizer and an embedding are named"));
  EXPECT_THAT(refusal(Small(), "net"), HasSubstr("a model and an embedding are named"));
  EmbeddingOptions options = Small();
  options.width = 0;
  EXPECT_THAT(refusal(options), HasSubstr("must be above 0, is 0"));
  options = Small();
  options.initializer = "ones";
  EXPECT_THAT(refusal(options), HasSubstr("initializer.name"));
  EXPECT_THAT(refusal(Small({{"name", "adam"}, {"global_clipnorm", 1.0}})),
              HasSubstr("the optimizer of embedding \"third\" has global_clipnorm"));
  options = Small();
  options.dtype = "bfloat61";
  EXPECT_THAT(
      refusal(options),
      HasSubstr("dtype of embedding \"third\" must be one of float32, float16, bfloat16, is "
                "\"bfloat61\", did you mean \"bfloat16\"?"));
  options = Small();
  options.eviction = "random";
  EXPECT_THAT(refusal(options), HasSubstr("eviction of embedding \"third\" must be one of"));
  options = Small();
  options.max_rows = -1;
  EXPECT_THAT(refusal(options), HasSubstr("max_rows of embedding \"third\" must be at least 0"));
  options = Small();
  options.admit_after = 0;
  EXPECT_THAT(refusal(options), HasSubstr("must be at least 1, is 0"));
  job_.optimizer = {{"sgd", "rowwise_adagrad"}};
  EXPECT_THAT(refusal(Small()), HasSubstr("which is for embedding tables alone"));
  job_.optimizer = nullptr;
  job_.learning_rate = {{"lefd", 0.75}};
  EXPECT_THAT(refusal(Small()), HasSubstr("did you mean \"left\""));
}

}  // namespace
}  // namespace muster
