#include "common/train/exchange/parameter_exchange.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <map>

#include "tests/unit/train/exchange/exchange_worker.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::MakeJob;
using testing::RunLocally;
using testing::Servers;
using testing::Small;
using testing::SquaredError;
using testing::TestProgram;
using testing::Values;
using testing::Worker;

struct Data {
  at::Tensor x, y;
};
Data MakeData(int64_t n, int64_t features = 5) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({n, features});
  return {x, x.sum(1) + 0.5f + 0.1 * at::randn({n})};
}
data::Batch BatchOf(const Data& data, int64_t step, int64_t batch) {
  const int64_t begin = (step - 1) * batch % data.x.size(0);
  return {data.x.slice(0, begin, begin + batch), data.y.slice(0, begin, begin + batch)};
}

void ExpectEqual(Worker& worker, const std::map<std::string, at::Tensor>& want) {
  for (const auto& [name, value] : want) {
    const at::Tensor got = Values(*worker.program).at(name);
    EXPECT_TRUE(at::allclose(got, value, 1e-5, 1e-6)) << name << "\n" << got << "\n" << value;
  }
}

// The same job with servers and alone: `set_up` is the program.
void ExpectLikeSynchronous(Job job, const Data& data, std::function<void(TestProgram&)> set_up) {
  std::unique_ptr<Servers> servers;
  Worker worker(job, Small(2), set_up, &servers);
  ASSERT_TRUE(worker.status.ok()) << worker.status;
  for (int64_t step = 1; step <= *job.max_steps; ++step) {
    const auto result = worker.Step(BatchOf(data, step, *job.global_batch_size), step);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  const auto alone = RunLocally(job, 1, set_up);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ExpectEqual(worker, alone.replicas[0]);
}

TEST(ParameterExchangeTest, OneWorkerIsLikeSynchronousTraining) {
  const Data data = MakeData(24);
  ExpectLikeSynchronous(MakeJob(8, 6), data,
                        [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
}

TEST(ParameterExchangeTest, MicroBatchesAddUp) {
  const Data data = MakeData(24);
  Job job = MakeJob(8, 6);
  job.accumulate_steps = 3;
  ExpectLikeSynchronous(job, data, [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
}

TEST(ParameterExchangeTest, ClippingComesBeforeThePush) {
  const Data data = MakeData(24);
  Job job = MakeJob(8, 6);
  job.optimizer = {{"name", "sgd"}, {"global_clipnorm", 0.5}};
  ExpectLikeSynchronous(job, data, [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
}

// Two optimizers, one of them twice in a step.
TEST(ParameterExchangeTest, EachMinimizeIsAPush) {
  const Data data = MakeData(24);
  const auto set_up = [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.second = std::make_shared<testing::Tensors>();
    p.on_build = [inner = p.on_build](TestProgram& self, Builder& builder) {
      self.second->parameter("v", at::ones({3}));
      builder.model("other", self.second);
      self.optimizers["other"] = builder.optimizer("other", {"other"}, "sgd", 0.05);
      inner(self, builder);
    };
    p.on_step = [](TestProgram& self, muster::Step& step, const data::Batch& batch) {
      const int64_t n = batch[0].size(0);
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
      step.minimize(self.optimizers["other"],
                    ((*self.second)["v"].sum() - (*self.model)["b"].detach()).square().expand({n}));
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  };
  ExpectLikeSynchronous(MakeJob(8, 4), data, set_up);
  std::unique_ptr<Servers> servers;
  Worker worker(MakeJob(8, 4), Small(2), set_up, &servers);
  for (int64_t step = 1; step <= 2; ++step)
    ASSERT_TRUE(worker.Step(BatchOf(data, step, 8), step).ok());
  EXPECT_EQ(worker.client->sequences, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(ParameterExchangeTest, SeveralLossesAreOnePush) {
  const Data data = MakeData(24);
  const auto set_up = [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.second = std::make_shared<testing::Tensors>();
    p.on_build = [inner = p.on_build](TestProgram& self, Builder& builder) {
      self.second->parameter("v", at::ones({5}));
      builder.model("other", self.second);
      self.optimizers["other"] = builder.optimizer("other", {"other"}, "sgd", 0.05);
      inner(self, builder);
    };
    p.on_step = [](TestProgram& self, muster::Step& step, const data::Batch& batch) {
      const at::Tensor loss = SquaredError(self, batch);
      const at::Tensor other = at::matmul(batch[0], (*self.second)["v"]) * loss;
      step.minimize({{self.optimizers["sgd"], loss + other}, {self.optimizers["other"], other}});
    };
  };
  for (const Precision precision : {Precision::kFloat32, Precision::kFloat16}) {
    for (const int64_t accumulate : {1, 3}) {
      Job job = MakeJob(8, 4);
      job.accumulate_steps = accumulate;
      job.precision = precision;
      job.learning_rate = 0.001;
      ExpectLikeSynchronous(job, data, set_up);
    }
  }
  std::unique_ptr<Servers> servers;
  Worker worker(MakeJob(8, 4), Small(2), set_up, &servers);
  for (int64_t step = 1; step <= 2; ++step)
    ASSERT_TRUE(worker.Step(BatchOf(data, step, 8), step).ok());
  EXPECT_EQ(worker.client->sequences, (std::vector<uint64_t>{1, 2}));
}

TEST(ParameterExchangeTest, WeightsAreOfTheWorkersOwnBatch) {
  const Data data = MakeData(24);
  for (const int64_t accumulate : {1, 3}) {
    Job job = MakeJob(8, 6);
    job.accumulate_steps = accumulate;
    ExpectLikeSynchronous(job, data, [&](TestProgram& p) {
      LeastSquares(p, data.x, data.y);
      p.on_step = [](TestProgram& self, muster::Step& step, const data::Batch& batch) {
        step.regularize(0.1 * (*self.model)["w"].square().sum());
        step.minimize(self.optimizers["sgd"], SquaredError(self, batch), batch[1].square());
      };
    });
  }
}

TEST(ParameterExchangeTest, WorkersDoNotMeetInAStep) {
  const Data data = MakeData(24);
  for (const bool gather : {false, true}) {
    std::unique_ptr<Servers> servers;
    Worker worker(
        MakeJob(8, 4), Small(2),
        [&](TestProgram& p) {
          LeastSquares(p, data.x, data.y);
          p.on_step = [gather](TestProgram&, muster::Step& step, const data::Batch& batch) {
            gather ? step.all_gather(batch[1]) : step.all_reduce(batch[1]);
          };
        },
        &servers);
    const auto result = worker.Step(BatchOf(data, 1, 8), 1);
    EXPECT_EQ(ExitCodeOf(result.status()), ExitCode::kProgramFailed);
    EXPECT_THAT(
        std::string(Message(result.status())),
        HasSubstr(gather ? "all_gather was called, but workers of a parameter-server job do "
                           "not meet"
                         : "all_reduce was called, but workers of a parameter-server job "
                           "do not meet"));
  }
}

TEST(ParameterExchangeTest, ChunksGoWhileTheBackwardPassRuns) {
  const Data data = MakeData(24);
  std::unique_ptr<Servers> servers;
  size_t seen = 0;
  Worker* self = nullptr;
  Worker worker(
      MakeJob(8, 4), Small(2),
      [&](TestProgram& p) {
        LeastSquares(p, data.x, data.y);
        p.on_step = [&, inner = p.on_step](TestProgram& program, muster::Step& step,
                                           const data::Batch& batch) {
          inner(program, step, batch);
          seen = self->client->launched.size();
        };
      },
      &servers);
  self = &worker;
  const size_t chunks = servers->layout.chunks[0].size() + servers->layout.chunks[1].size();
  ASSERT_TRUE(worker.Step(BatchOf(data, 1, 8), 1).ok());
  EXPECT_EQ(seen, 0u) << "the first step may have to start again";
  ASSERT_TRUE(worker.Step(BatchOf(data, 2, 8), 2).ok());
  EXPECT_EQ(seen, 2 * chunks);
  EXPECT_EQ(worker.exchange().outcome().staleness_max, 3);
}

// A program that begins to minimize twice when its chunks are gone cannot start again.
TEST(ParameterExchangeTest, ASecondMinimizeAfterAPushGoesOn) {
  const Data data = MakeData(24);
  std::unique_ptr<Servers> servers;
  Worker worker(
      MakeJob(8, 4), Small(1),
      [&](TestProgram& p) {
        LeastSquares(p, data.x, data.y);
        p.on_step = [](TestProgram& program, muster::Step& step, const data::Batch& batch) {
          step.minimize(program.optimizers["sgd"], SquaredError(program, batch));
          if (step.number() > 1)
            step.minimize(program.optimizers["sgd"], SquaredError(program, batch));
        };
      },
      &servers);
  for (int64_t step = 1; step <= 3; ++step)
    ASSERT_TRUE(worker.Step(BatchOf(data, step, 8), step).ok());
  EXPECT_EQ(worker.client->sequences, (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST(ParameterExchangeTest, WhatHasNoGradientStays) {
  const Data data = MakeData(24);
  std::unique_ptr<Servers> servers;
  push_pull::LayoutOptions options;  // one chunk for each part of 2 elements and above
  options.chunk_bytes = 4;
  Worker worker(
      MakeJob(8, 4), options,
      [&](TestProgram& p) {
        LeastSquares(p, data.x, data.y);
        p.on_step = [](TestProgram& program, muster::Step& step, const data::Batch& batch) {
          step.minimize(program.optimizers["sgd"],
                        (at::matmul(batch[0], (*program.model)["w"]) - batch[1]).square());
        };
      },
      &servers);
  for (int64_t step = 1; step <= 2; ++step)
    ASSERT_TRUE(worker.Step(BatchOf(data, step, 8), step).ok());
  EXPECT_EQ(worker.client->launched.size(), 2 * 5u);
  EXPECT_EQ((*worker.program->model)["b"].item<float>(), 0.f);
}

// A running mean, and a count that nobody else needs to know.
void WithStatistics(TestProgram& p, const Data& data) {
  LeastSquares(p, data.x, data.y);
  p.on_build = [inner = p.on_build](TestProgram& self, Builder& builder) {
    self.model->buffer("mean", at::full({5}, 2.f));
    self.model->buffer("count", at::zeros({}, at::kLong));
    inner(self, builder);
  };
  p.on_step = [inner = p.on_step](TestProgram& self, muster::Step& step, const data::Batch& batch) {
    {
      const at::NoGradGuard no_grad;
      (*self.model)["mean"].mul_(0.9f).add_(batch[0].mean(0) * 0.1f);
      (*self.model)["count"].add_(1);
    }
    inner(self, step, batch);
  };
}

TEST(ParameterExchangeTest, BuffersTravelAsDifferences) {
  const Data data = MakeData(24);
  ExpectLikeSynchronous(MakeJob(8, 6), data, [&](TestProgram& p) { WithStatistics(p, data); });
  std::unique_ptr<Servers> servers;
  Worker one(
      MakeJob(8, 6), Small(1), [&](TestProgram& p) { WithStatistics(p, data); }, &servers);
  Worker other(
      MakeJob(8, 6), Small(1), [&](TestProgram& p) { WithStatistics(p, data); }, &servers, 1);
  ASSERT_TRUE(one.Step(BatchOf(data, 1, 8), 1).ok());
  ASSERT_TRUE(other.Step(BatchOf(data, 2, 8), 2).ok());
  // Both differences are in it: from 2 towards the means of both batches.
  const at::Tensor want = at::full({5}, 2.f) - 0.4f + BatchOf(data, 1, 8)[0].mean(0) * 0.1f +
                          BatchOf(data, 2, 8)[0].mean(0) * 0.1f;
  EXPECT_TRUE(at::allclose((*other.program->model)["mean"], want, 1e-5, 1e-6));
}

TEST(ParameterExchangeTest, AFailedPushIsTheStepsFailure) {
  const Data data = MakeData(24);
  std::unique_ptr<Servers> servers;
  Worker worker(
      MakeJob(8, 4), Small(1), [&](TestProgram& p) { LeastSquares(p, data.x, data.y); }, &servers);
  worker.client->fails = PeerLost("ps 0 is gone");
  const auto result = worker.Step(BatchOf(data, 1, 8), 1);
  EXPECT_THAT(std::string(Message(result.status())), HasSubstr("ps 0 is gone"));
  worker.client->fails = absl::OkStatus();
  EXPECT_TRUE(worker.Step(BatchOf(data, 2, 8), 2).ok());
}

}  // namespace
}  // namespace muster
