// Training on servers that hold what parameter servers hold, beside the same training in one
// process.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <map>

#include "tests/unit/train/exchange/exchange_worker.h"

namespace muster {
namespace {

using push_pull::LayoutOptions;
using ::testing::HasSubstr;
using testing::MakeJob;
using testing::RunLocally;
using testing::Servers;
using testing::TestProgram;
using testing::Worker;

constexpr int64_t kSteps = 8;

struct Data {
  at::Tensor x, y;
};
Data MakeData() {
  at::manual_seed(7);
  const at::Tensor x = at::randn({64, 4});
  return {x, x.sum(1) + 0.1 * at::randn({64})};
}
data::Batch BatchOf(const Data& data, int64_t step, int64_t batch) {
  const int64_t begin = (step - 1) * batch % data.x.size(0);
  return {data.x.slice(0, begin, begin + batch), data.y.slice(0, begin, begin + batch)};
}

// "odd" is used in odd steps, "even" in even ones and there by the first replica alone,
// "always" and "b" in all, "never" in none.
void Conditional(TestProgram& program, const Data& data, const Json& optimizer) {
  program.on_build = [data, optimizer](TestProgram& self, Builder& builder) {
    self.model->parameter("always", at::full({4}, 0.1f));
    self.model->parameter("odd", at::full({4}, 0.2f));
    self.model->parameter("even", at::full({4}, 0.3f));
    self.model->parameter("never", at::full({4}, 0.4f));
    self.model->parameter("b", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, optimizer, 0.05);
    builder.dataset(Split::kTrain, testing::Tensors2(data.x, data.y));
  };
  program.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    testing::Tensors& model = *self.model;
    at::Tensor weights = model["always"];
    if (step.number() % 2 == 1) {
      weights = weights + model["odd"];
    } else if (step.replica() == 0) {
      weights = weights + model["even"];
    }
    step.minimize(self.optimizers["sgd"],
                  (at::matmul(batch[0], weights) + model["b"] - batch[1]).square());
  };
}

const char* const kOptimizers[] = {
    R"({"name": "sgd"})",
    R"({"name": "sgd", "momentum": 0.9})",
    R"({"name": "sgd", "weight_decay": 0.1})",
    R"({"name": "adam"})",
    R"({"name": "adam", "amsgrad": true, "weight_decay": 0.1})",
    R"({"name": "adamw", "weight_decay": 0.1})",
    R"({"name": "adagrad"})",
    R"({"name": "rmsprop", "momentum": 0.5, "centered": true})",
    R"({"name": "ftrl"})",
};

LayoutOptions Divided(int servers, int64_t chunk_bytes) {
  LayoutOptions options;
  options.servers = servers;
  options.chunk_bytes = chunk_bytes;
  options.partitioner.kind = push_pull::Partitioner::Kind::kFixed;
  options.partitioner.parts = servers;
  return options;
}

std::map<std::string, at::Tensor> ParametersOf(Worker& worker) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : worker.program->model->named_parameters())
    all[item.key()] = item.value().detach().clone();
  for (const auto& item : worker.program->model->named_buffers())
    all[item.key()] = item.value().detach().clone();
  return all;
}

void ExpectClose(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& want) {
  for (const auto& [name, value] : want)
    EXPECT_TRUE(at::allclose(got.at(name), value, 1e-4, 1e-5)) << name << "\n"
                                                               << got.at(name) << "\n"
                                                               << value;
}

using SetUp = std::function<void(TestProgram&)>;

std::map<std::string, at::Tensor> OneWorker(const Job& job, const Data& data, const SetUp& set_up,
                                            const LayoutOptions& options) {
  std::unique_ptr<Servers> servers;
  Worker worker(job, options, set_up, &servers);
  for (int64_t step = 1; step <= *job.max_steps; ++step) {
    const auto result = worker.Step(BatchOf(data, step, *job.global_batch_size), step);
    EXPECT_TRUE(result.ok()) << result.status();
  }
  return ParametersOf(worker);
}

class EachOptimizer : public ::testing::TestWithParam<const char*> {};

TEST_P(EachOptimizer, WhatHasNoGradientStaysAsInSynchronousTraining) {
  const Data data = MakeData();
  const Json optimizer = Json::parse(GetParam());
  const auto set_up = [&](TestProgram& p) { Conditional(p, data, optimizer); };
  const Job job = MakeJob(8, kSteps);
  const auto alone = RunLocally(job, 1, set_up);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  EXPECT_TRUE(at::equal(alone.replicas[0].at("never"), at::full({4}, 0.4f)));
  std::map<std::string, at::Tensor> first;
  for (const auto& [servers, chunk_bytes] :
       {std::pair{1, 1 << 20}, {1, 8}, {2, 1 << 20}, {3, 16}}) {
    SCOPED_TRACE(::testing::Message() << servers << " servers, chunks of " << chunk_bytes);
    const auto served = OneWorker(job, data, set_up, Divided(servers, chunk_bytes));
    EXPECT_TRUE(at::equal(served.at("never"), at::full({4}, 0.4f)));
    ExpectClose(served, alone.replicas[0]);
    if (first.empty()) first = served;
    for (const auto& [name, value] : first)
      EXPECT_TRUE(at::equal(served.at(name), value)) << name << " depends on the layout";
  }
}

// Rates and hyperparameters of groups reach the servers' chunks.
TEST_P(EachOptimizer, GroupsAreLikeSynchronousTraining) {
  const Data data = MakeData();
  Json optimizer = Json::parse(GetParam());
  Json slow = {{"parameters", "net.always"}, {"learning_rate_scale", 0.25}};
  Json other = {{"parameters", Json::array({"b", "od?"})}};
  if (optimizer["name"] == "ftrl") {
    other["l1"] = 0.01;
  } else {
    other["weight_decay"] = 0.2;
  }
  optimizer["groups"] = Json::array({slow, other});
  const auto set_up = [&](TestProgram& p) { Conditional(p, data, optimizer); };
  const Job job = MakeJob(8, kSteps);
  const auto alone = RunLocally(job, 1, set_up);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  optimizer.erase("groups");
  const auto without = RunLocally(job, 1, set_up);
  for (const char* name : {"always", "odd"})
    EXPECT_FALSE(at::allclose(without.replicas[0].at(name), alone.replicas[0].at(name), 1e-4, 1e-5))
        << name << " is in a group that changes nothing";
  optimizer["groups"] = Json::array({slow, other});
  for (const auto& [servers, chunk_bytes] : {std::pair{1, 1 << 20}, {3, 8}})
    ExpectClose(OneWorker(job, data, set_up, Divided(servers, chunk_bytes)), alone.replicas[0]);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EachOptimizer, ::testing::ValuesIn(kOptimizers));

// "odd", "even" and "never" as above; build() freezes "frozen", and step 4 "late".
TEST_P(EachOptimizer, EveryStepOfOneWorkerIsTheSynchronousOne) {
  const Data data = MakeData();
  const Json optimizer = Json::parse(GetParam());
  using States = std::map<int64_t, std::map<std::string, at::Tensor>>;  // before each step
  const auto set_up = [&](States* states) {
    return [&, states](TestProgram& p) {
      Conditional(p, data, optimizer);
      p.on_build = [build = p.on_build](TestProgram& self, Builder& builder) {
        self.model->parameter("frozen", at::full({4}, 0.5f)).set_requires_grad(false);
        self.model->parameter("late", at::full({4}, 0.6f));
        build(self, builder);
      };
      p.on_step = [states](TestProgram& self, Step& step, const data::Batch& batch) {
        for (const auto& [name, value] : testing::Values(self))
          (*states)[step.number()][name] = value.detach().clone();
        testing::Tensors& model = *self.model;
        at::Tensor late = model["late"];
        if (step.number() == 4) late.set_requires_grad(false);
        const at::Tensor weights = model["always"] + model["frozen"] + late +
                                   model[step.number() % 2 == 1 ? "odd" : "even"];
        step.minimize(self.optimizers["sgd"],
                      (at::matmul(batch[0], weights) + model["b"] - batch[1]).square());
      };
    };
  };
  const Job job = MakeJob(8, kSteps + 1);
  States alone;
  const absl::Status status = RunLocally(job, 1, set_up(&alone)).status;
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(alone.size(), static_cast<size_t>(kSteps + 1));
  EXPECT_TRUE(at::equal(alone.at(kSteps + 1).at("late"), alone.at(4).at("late")));
  EXPECT_FALSE(at::equal(alone.at(4).at("late"), alone.at(3).at("late")));
  for (const auto& [servers, chunk_bytes] :
       {std::pair{1, 1 << 20}, {1, 8}, {2, 1 << 20}, {2, 24}, {3, 16}}) {
    States served;
    OneWorker(job, data, set_up(&served), Divided(servers, chunk_bytes));
    for (const auto& [step, values] : alone)
      for (const auto& [name, value] : values)
        ASSERT_TRUE(at::allclose(served.at(step).at(name), value, 1e-6, 1e-6))
            << name << " before step " << step << " with " << servers << " servers and chunks of "
            << chunk_bytes << "\n"
            << served.at(step).at(name) << "\n"
            << value;
  }
}

// A worker that did not use a parameter gets what others made of it.
TEST(ServedTraining, WhatAStepDoesNotUseComesFromOthers) {
  const Data data = MakeData();
  const auto set_up = [&](TestProgram& p) { Conditional(p, data, {{"name", "adam"}}); };
  std::unique_ptr<Servers> servers;
  Worker one(MakeJob(8, kSteps), Divided(2, 8), set_up, &servers, 0);
  Worker other(MakeJob(8, kSteps), Divided(2, 8), set_up, &servers, 1);
  ASSERT_TRUE(one.Step(BatchOf(data, 1, 8), 1).ok());
  ASSERT_TRUE(other.Step(BatchOf(data, 2, 8), 2).ok());
  EXPECT_TRUE(at::equal((*one.program->model)["odd"], (*other.program->model)["odd"]));
  EXPECT_GT(other.client->pulled, 0);
}

// ---- Statistics

// A running mean and variance, as batch normalisation keeps them.
void WithStatistics(TestProgram& program, const Data& data) {
  program.on_build = [data](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::zeros({4}));
    self.model->buffer("norm_running_mean", at::zeros({4}));
    self.model->buffer("norm_running_var", at::ones({4}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.05);
    builder.dataset(Split::kTrain, testing::Tensors2(data.x, data.y));
  };
  program.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    testing::Tensors& model = *self.model;
    {
      const at::NoGradGuard no_grad;
      const at::Tensor& x = batch[0];
      model["norm_running_mean"].mul_(0.9f).add_(x.mean(0) * 0.1f);
      model["norm_running_var"].mul_(0.9f).add_(x.var(0, /*unbiased=*/true) * 0.1f);
    }
    step.minimize(self.optimizers["sgd"], (at::matmul(batch[0], model["w"]) - batch[1]).square());
  };
}

// With the whole difference of each worker a momentum of 1.6 came of 16 x 0.1: it diverges.
TEST(ServedTraining, SixteenWorkersInLockstepMoveStatisticsAsOneDoes) {
  Data data = MakeData();
  data.x.mul_(0.1f);  // far from what the statistics begin with
  const auto set_up = [&](TestProgram& p) { WithStatistics(p, data); };
  constexpr int kWorkers = 16;
  std::unique_ptr<Servers> servers;
  std::vector<std::unique_ptr<Worker>> all;
  for (int w = 0; w < kWorkers; ++w) {
    all.push_back(std::make_unique<Worker>(MakeJob(4, 1000), Divided(2, 8), set_up, &servers, w));
    all.back()->weight = 1.0 / kWorkers;
    all.back()->client->late = true;
  }
  at::Tensor mean = at::zeros({4}), var = at::ones({4});
  for (int64_t round = 0; round < 60; ++round) {
    at::Tensor means = at::zeros({4}), vars = at::zeros({4});
    for (int w = 0; w < kWorkers; ++w) {
      const int64_t step = round * kWorkers + w + 1;
      const data::Batch batch = BatchOf(data, step, 4);
      ASSERT_TRUE(all[w]->Step(batch, step).ok());
      means += batch[0].mean(0) / kWorkers;
      vars += batch[0].var(0, true) / kWorkers;
    }
    for (const auto& worker : all) worker->client->TakeLate();
    // One worker whose batch has the statistics of all.
    mean = mean * 0.9f + means * 0.1f;
    var = var * 0.9f + vars * 0.1f;
    testing::Tensors& model = *all[0]->program->model;
    ASSERT_TRUE(at::allclose(model["norm_running_mean"], mean, 1e-4, 1e-5)) << "round " << round;
    ASSERT_TRUE(at::allclose(model["norm_running_var"], var, 1e-4, 1e-5)) << "round " << round;
  }
}

// Sixteen workers at a learning rate of 0, one of which is as old as five rounds of the others when
// it pushes, beside sixteen replicas that see the same batches.
TEST(ServedTraining, AWorkerThatIsLateLeavesStatisticsWhereTheyAre) {
  constexpr int kWorkers = 16, kSlow = 5, kRounds = 80;
  at::manual_seed(11);
  const Data data{3 + 0.5 * at::randn({4096, 4}), at::zeros({4096})};
  const auto set_up = [&](TestProgram& p) { WithStatistics(p, data); };
  std::unique_ptr<Servers> servers;
  std::vector<std::unique_ptr<Worker>> all;
  Job job = MakeJob(32, 100000);
  job.learning_rate = 0;
  for (int w = 0; w < kWorkers; ++w) {
    all.push_back(std::make_unique<Worker>(job, Divided(4, 8), set_up, &servers, w));
    all.back()->weight = 1.0 / kWorkers;
    all.back()->client->late = true;
  }
  at::Tensor mean = at::zeros({4}), var = at::ones({4});
  int64_t step = 0;
  for (int round = 1; round <= kRounds; ++round) {
    at::Tensor means = at::zeros({4}), vars = at::zeros({4});
    for (int w = 0; w < kWorkers; ++w) {
      const data::Batch batch = BatchOf(data, ++step, 32);
      means += batch[0].mean(0) / kWorkers;
      vars += batch[0].var(0, true) / kWorkers;
      if (w == 0 && round % kSlow != 0) continue;
      ASSERT_TRUE(all[w]->Step(batch, step).ok());
    }
    for (int w = 0; w < kWorkers; ++w)
      if (w != 0 || round % kSlow == 0) all[w]->client->TakeLate();
    mean = mean * 0.9f + means * 0.1f;
    var = var * 0.9f + vars * 0.1f;
  }
  testing::Tensors& model = *all[1]->program->model;
  EXPECT_TRUE(at::allclose(model["norm_running_mean"], mean, 0.05, 0))
      << model["norm_running_mean"] << "\n"
      << mean;
  EXPECT_TRUE(at::allclose(model["norm_running_var"], var, 0.05, 0))
      << model["norm_running_var"] << "\n"
      << var;
  EXPECT_TRUE(at::equal(model["w"], at::zeros({4})));
}

// Nobody carries such a buffer to the others, and what is pulled would overwrite it.
TEST(ServedTraining, ABufferDeclaredTheSameMayNotChange) {
  const Data data = MakeData();
  enum class When { kNever, kInAStep, kBetweenSteps };
  for (const When when : {When::kNever, When::kInAStep, When::kBetweenSteps}) {
    for (const bool pulls : {false, true}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(when) << " pulls " << pulls);
      const auto set_up = [&](TestProgram& p) {
        WithStatistics(p, data);
        const auto build = p.on_build;
        p.on_build = [build](TestProgram& self, Builder& builder) {
          self.model->buffer("table", at::full({3}, 2.f));
          build(self, builder);
          builder.buffer("net.table", BufferMode::kSame);
        };
        const auto step = p.on_step;
        p.on_step = [step, when](TestProgram& self, Step& of, const data::Batch& batch) {
          if (when == When::kInAStep && of.number() == 3) (*self.model)["table"][1] = 7;
          step(self, of, batch);
        };
      };
      std::unique_ptr<Servers> servers;
      Worker worker(MakeJob(4, 8), Divided(2, 1 << 20), set_up, &servers, 0);
      ASSERT_TRUE(worker.exchange().Pull().ok());
      absl::Status status;
      for (int64_t step = 1; step <= 4 && status.ok(); ++step) {
        if (pulls && step > 1) status = worker.exchange().Pull();
        if (!status.ok()) break;
        status = worker.Step(BatchOf(data, step, 4), step).status();
        if (step == 2 && when == When::kBetweenSteps) (*worker.program->model)["table"][0] = 9;
      }
      if (when == When::kNever) {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed) << status;
      EXPECT_THAT(std::string(Message(status)),
                  HasSubstr("buffer \"net.table\" is declared kSame, and the program has changed"));
    }
  }
}

// A worker that stood still for long brings a difference from a variance that is no more.
TEST(ServedTraining, AVarianceIsNeverNegativeHoweverOldADifferenceIs) {
  Data data = MakeData();
  data.x.mul_(1e-3f);
  const auto set_up = [&](TestProgram& p) { WithStatistics(p, data); };
  std::unique_ptr<Servers> servers;
  Worker slow(MakeJob(4, 1000), Divided(1, 1 << 20), set_up, &servers, 0);
  Worker fast(MakeJob(4, 1000), Divided(1, 1 << 20), set_up, &servers, 1);
  slow.weight = fast.weight = 0.5;
  for (int64_t step = 1; step <= 200; ++step)
    ASSERT_TRUE(fast.Step(BatchOf(data, step, 4), step).ok());
  const at::Tensor before = (*fast.program->model)["norm_running_var"].clone();
  EXPECT_LT(before.max().item<float>(), 1e-3);
  ASSERT_TRUE(slow.Step(BatchOf(data, 201, 4), 201).ok());
  const at::Tensor after = (*slow.program->model)["norm_running_var"];
  EXPECT_GE(after.min().item<float>(), 0) << "from 1 to 0.9 of " << before;
  EXPECT_TRUE(at::allclose(after, before * 0.5)) << "one of two takes half at the most";
}

}  // namespace
}  // namespace muster
