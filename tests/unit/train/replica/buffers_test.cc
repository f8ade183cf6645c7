// Buffers across replicas: mean, same, per replica; what is saved of them, and restored.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "common/base/glob.h"
#include "common/collective/group/formation.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/snapshot.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::LeastSquares;
using testing::RunOptions;
using testing::RunResult;
using testing::SquaredError;
using testing::TestProgram;

constexpr int64_t kExamples = 10;

at::Tensor Inputs() { return at::arange(2 * kExamples, at::kFloat).reshape({kExamples, 2}) / 20; }

using Change = std::function<void(TestProgram&, Step&, const data::Batch&)>;
using Declare = std::function<void(TestProgram&, Builder&)>;

// Batches of 5: two steps an epoch. `declare` adds buffers to the model, which is declared already.
std::function<void(TestProgram&)> Program(Declare declare, Change change) {
  return [=](TestProgram& p) {
    LeastSquares(p, Inputs(), Inputs().sum(1));
    const auto build = p.on_build;
    p.on_build = [=](TestProgram& self, Builder& builder) {
      build(self, builder);
      declare(self, builder);
    };
    p.on_step = [=](TestProgram& self, Step& step, const data::Batch& batch) {
      {
        const at::NoGradGuard no_grad;
        change(self, step, batch);
      }
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  };
}

RunOptions Options(int replicas, int64_t steps) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 5;
  options.job.max_steps = steps;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  return options;
}

TEST(Glob, MatchesTextAndCharacters) {
  EXPECT_TRUE(MatchesGlob("net.*", "net.pool.images"));
  EXPECT_TRUE(MatchesGlob("*pool*", "net.pool.images"));
  EXPECT_TRUE(MatchesGlob("net.?", "net.b"));
  EXPECT_TRUE(MatchesGlob("a*b*c", "a1b2b3c"));
  EXPECT_FALSE(MatchesGlob("a*b*c", "a1b2b3"));
  EXPECT_FALSE(MatchesGlob("net.?", "net."));
  EXPECT_FALSE(MatchesGlob("", "a"));
  EXPECT_TRUE(MatchesGlob("*", ""));
}

TEST(Buffers, ConstantTablesKeepTheirBits) {
  const at::Tensor table = at::linspace(0, 1, 1000).pow(3) + 1e-3;
  const auto run = testing::Run(
      Options(3, 6),
      Program([=](TestProgram& self, Builder&) { self.model->buffer("table", table.clone()); },
              [](TestProgram&, Step&, const data::Batch&) {}));
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (const auto& replica : run.replicas) EXPECT_TRUE(at::equal(replica.at("table"), table));
}

// Returns the value of a buffer of the given type that keeps the batch's mean of the first feature,
// from step `first` on.
at::Tensor MeanOf(int replicas, at::ScalarType type, int64_t first, int64_t steps) {
  const auto run = testing::Run(
      Options(replicas, steps),
      Program(
          [=](TestProgram& self, Builder&) {
            self.model->buffer("constant", at::full({3}, 0.1));
            self.model->buffer("mean", at::zeros({1}, type));
          },
          [=](TestProgram& self, Step& step, const data::Batch& batch) {
            if (step.number() < first) return;
            (*self.model)["mean"].copy_(batch[0].select(1, 0).to(at::kDouble).mean().reshape({1}));
          }));
  EXPECT_TRUE(run.status.ok()) << run.status;
  for (const auto& replica : run.replicas)
    EXPECT_TRUE(at::equal(replica.at("mean"), run.replicas[0].at("mean")));
  return run.replicas[0].at("mean");
}

TEST(Buffers, WhatAStepChangesIsTheMeanOverExamplesFromThatStepOn) {
  for (const int replicas : {2, 3, 7}) {
    for (const int64_t first : {1, 2, 4}) {
      const double alone = MeanOf(1, at::kFloat, first, 4).item<double>();
      EXPECT_NEAR(MeanOf(replicas, at::kFloat, first, 4).item<double>(), alone, 1e-6);
    }
  }
}

// Each replica sets a buffer to what it will have seen, between two steps.
TEST(Buffers, WhatChangesBetweenStepsIsTheMeanFromTheNextStepOn) {
  for (const bool on_commit : {false, true}) {
    const auto run = testing::Run(Options(3, 4), [on_commit](TestProgram& p) {
      Program([](TestProgram& self, Builder&) { self.model->buffer("own", at::zeros({2})); },
              [on_commit](TestProgram& self, Step& step, const data::Batch&) {
                const int64_t replica = step.replica();
                if (on_commit && step.number() == 2)
                  step.on_commit([&self, replica] { (*self.model)["own"].fill_(replica); });
              })(p);
      if (on_commit) return;
      p.on_run = [](TestProgram& self, Loop& loop) {
        data::Batch batch;
        while (loop.next(&batch)) {
          if (loop.steps() == 2) (*self.model)["own"].fill_(loop.replica());
          loop.step([&](Step& step, const data::Batch& part) {
            step.minimize(self.optimizers["sgd"], SquaredError(self, part));
          });
        }
      };
    });
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (const auto& replica : run.replicas)  // of 5 examples: 2, 2, 1
      EXPECT_TRUE(at::allclose(replica.at("own"), at::full({2}, (0. * 2 + 1 * 2 + 2 * 1) / 5)))
          << replica.at("own");
  }
}

TEST(Buffers, ARestoredRunTakesNoneForChanged) {
  const at::Tensor table = at::linspace(0, 1, 1000).pow(3) + 1e-3;
  const auto program = [&](double factor) {
    return Program(
        [=](TestProgram& self, Builder&) { self.model->buffer("table", table * factor); },
        [](TestProgram&, Step&, const data::Batch&) {});
  };
  KeptCheckpoints kept;
  RunOptions first = Options(3, 2);
  first.checkpoints = &kept;
  ASSERT_TRUE(testing::Run(std::move(first), program(1)).status.ok());
  RunOptions second = Options(3, 6);
  second.restore = &kept.kept.back();
  // build() makes others, so that each replica's differs from what it is given.
  const auto run = testing::Run(std::move(second), program(3));
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (const auto& replica : run.replicas) EXPECT_TRUE(at::equal(replica.at("table"), table));
}

// The calls of an operator in all threads while it lives.
class Calls {
 public:
  explicit Calls(const char* name) {
    name_ = name;
    count_ = 0;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          if (std::strcmp(function.name(), name_) == 0) ++count_;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Calls() { at::removeCallback(handle_); }
  int64_t count() const { return count_; }

 private:
  static inline const char* name_ = nullptr;
  static inline std::atomic<int64_t> count_ = 0;
  uint64_t handle_ = 0;
};

TEST(Buffers, ManyThatNeverChangeAreComparedTogether) {
  const Calls calls("aten::ne");
  const auto run =
      testing::Run(Options(2, 4), Program(
                                      [](TestProgram& self, Builder&) {
                                        for (int i = 0; i < 50; ++i)
                                          self.model->buffer("table" + std::to_string(i),
                                                             at::full({7}, 0.1 * i));
                                      },
                                      [](TestProgram&, Step&, const data::Batch&) {}));
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_LE(calls.count(), 2 * 4);
  EXPECT_GT(calls.count(), 0);
}

TEST(Buffers, OneOfManyIsFoundWhateverItsTypeAndSize) {
  const auto changes = [](const std::string& which) {
    return testing::Run(
        Options(2, 4),
        Program(
            [](TestProgram& self, Builder&) {
              for (const at::ScalarType type : {at::kHalf, at::kFloat, at::kDouble, at::kBFloat16})
                self.model->buffer(c10::toString(type), at::full({5}, 2., type));
              self.model->buffer("large", at::zeros({1 << 17}));
              self.model->buffer("scalar", at::full({}, std::nanf("")));
              self.model->buffer("empty", at::zeros({0}));
              self.model->buffer("turned", at::ones({3, 4}).t());
            },
            [=](TestProgram& self, Step& step, const data::Batch&) {
              if (step.number() == 3) (*self.model)[which].fill_(step.replica());
            }));
  };
  for (const char* which : {"Half", "Float", "Double", "BFloat16", "large", "scalar", "turned"}) {
    const RunResult run = changes(which);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const at::Tensor mean = run.replicas[0].at(which).to(at::kDouble);
    EXPECT_TRUE(at::allclose(mean, at::full(mean.sizes(), 0.4, at::kDouble), 1e-2)) << which;
    EXPECT_TRUE(at::equal(run.replicas[1].at(which), run.replicas[0].at(which))) << which;
    for (const char* other : {"Half", "Float", "large"}) {
      if (other == std::string(which)) continue;
      const double constant = other == std::string("large") ? 0 : 2;
      EXPECT_TRUE(run.replicas[1].at(other).eq(constant).all().item<bool>()) << other;
    }
  }
}

TEST(Buffers, Float64IsReducedInDouble) {
  for (const int64_t first : {1, 3}) {
    const double alone = MeanOf(1, at::kDouble, first, 3).item<double>();
    EXPECT_NEAR(MeanOf(3, at::kDouble, first, 3).item<double>(), alone, 1e-15);
  }
}

// The optimizer that ends a step takes them along, and no other has room for them.
TEST(Buffers, OneOptimizerOfSeveralHasRoomForThem) {
  constexpr int64_t kElements = 5000;
  const Job job = Options(1, 1).job;
  auto replica = Replica::Make(
      job,
      [] {
        auto program = std::make_unique<TestProgram>();
        Program(
            [](TestProgram& self, Builder& builder) {
              self.model->buffer("running", at::zeros({kElements}));
              builder.optimizer("second", {"net"}, "sgd", 0.1);
            },
            [](auto&...) {})(*program);
        return program;
      },
      c10::Device(at::kCPU));
  ASSERT_TRUE(replica.ok()) << replica.status();
  const auto communicators = collective::MakeThreadCommunicators(1, std::chrono::seconds(10));
  const auto room = [&](int optimizer) {
    return (*replica)->optimizers()[optimizer].gradients->control_capacity();
  };
  // Attaches at a start, when nothing has changed yet, and in a generation that begins later.
  ASSERT_TRUE((*replica)->Attach(communicators[0].get(), {4, 4}, job.collective).ok());
  EXPECT_LT(room(0), kElements);
  EXPECT_LT(room(1), kElements);
  (*replica)->MarkAveraged((*replica)->buffers().size() - 1);
  ASSERT_TRUE((*replica)->Attach(communicators[0].get(), {4, 4}, job.collective).ok());
  EXPECT_LT(room(0), kElements);
  EXPECT_GE(room(1), kElements);
}

TEST(Buffers, SameOnesAreNotReducedAndAreCompared) {
  const auto run_with = [](bool alike) {
    return testing::Run(Options(3, 2),
                        Program(
                            [](TestProgram& self, Builder& builder) {
                              self.model->buffer("sum", at::full({1}, 0.1));
                              builder.buffer("net.sum", BufferMode::kSame);
                            },
                            [=](TestProgram& self, Step& step, const data::Batch&) {
                              (*self.model)["sum"].add_(alike ? 0.1 : 0.1 * (1 + step.replica()));
                            }));
  };
  const RunResult alike = run_with(true);
  ASSERT_TRUE(alike.status.ok()) << alike.status;
  at::Tensor expected = at::full({1}, 0.1);
  for (int i = 0; i < 2; ++i) expected.add_(0.1);
  EXPECT_TRUE(at::equal(alike.replicas[1].at("sum"), expected));
  const RunResult other = run_with(false);
  EXPECT_EQ(ExitCodeOf(other.status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(other.status)), HasSubstr("buffer \"net.sum\" is declared the "
                                                            "same on all replicas, and is not"));
}

std::string Refusal(Declare declare) {
  const auto run = testing::Run(Options(1, 1), Program(declare, [](auto&...) {}));
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  return std::string(Message(run.status));
}

TEST(Buffers, WrongDeclarationsAreRefused) {
  EXPECT_THAT(Refusal([](TestProgram& self, Builder& builder) {
                self.model->buffer("pool", at::zeros({2}));
                builder.buffer("pool", BufferMode::kPerReplica);
              }),
              HasSubstr("no buffer matches \"pool\""));
  EXPECT_THAT(Refusal([](TestProgram& self, Builder& builder) {
                self.model->buffer("count", at::zeros({2}, at::kLong));
                builder.buffer("net.*", BufferMode::kMean);
              }),
              HasSubstr("buffer \"net.count\" is of type Long"));
}

// ---- Per replica

// A queue of the last four inputs that this replica saw, and how many there were; the loss depends
// on both.
void Queue(TestProgram& p) {
  LeastSquares(p, Inputs(), Inputs().sum(1));
  const auto build = p.on_build;
  p.on_build = [=](TestProgram& self, Builder& builder) {
    self.model->buffer("queue", at::zeros({4}));
    self.model->buffer("seen", at::zeros({}, at::kLong));
    self.model->buffer("running", at::zeros({}));
    build(self, builder);
    builder.buffer("net.queue", BufferMode::kPerReplica);
    builder.buffer("net.s*", BufferMode::kPerReplica);
  };
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor queue = (*self.model)["queue"], seen = (*self.model)["seen"];
    const at::Tensor used = queue.mean() + 0.01 * seen;
    step.minimize(self.optimizers["sgd"], SquaredError(self, batch) * (1 + used));
    const at::NoGradGuard no_grad;
    for (int64_t i = 0; i < batch[0].size(0); ++i) {
      queue.copy_(queue.roll(1));
      queue[0] = batch[0][i][0] + step.replica();
      seen.add_(1);
    }
    (*self.model)["running"].add_(0.1);
  };
}

TEST(PerReplica, EachReplicaKeepsItsOwn) {
  const auto run = testing::Run(Options(3, 2), Queue);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.replicas[0].at("seen").item<int64_t>(), 4);  // of 5: 2, 2, 1
  EXPECT_EQ(run.replicas[2].at("seen").item<int64_t>(), 2);
  EXPECT_FLOAT_EQ(run.replicas[2].at("queue")[0].item<float>(), Inputs()[9][0].item<float>() + 2);
  EXPECT_FALSE(at::equal(run.replicas[0].at("queue"), run.replicas[1].at("queue")));
}

class PerReplicaResume : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, PerReplicaResume, ::testing::Values(1, 2, 3));

TEST_P(PerReplicaResume, GoesOnExactly) {
  const int replicas = GetParam();
  KeptCheckpoints kept;
  RunOptions whole = Options(replicas, 5);
  whole.checkpoints = &kept;
  kept.wanted = [](const SaveMoment& moment) { return moment.step == 3; };
  const RunResult through = testing::Run(std::move(whole), Queue);
  ASSERT_TRUE(through.status.ok()) << through.status;
  const checkpoint::Snapshot& saved = kept.kept.at(0);
  const checkpoint::Tensor* queues = saved.replica_buffers.Find("queue");
  ASSERT_NE(queues, nullptr);
  EXPECT_THAT(queues->shape, ::testing::ElementsAre(replicas, 4));
  EXPECT_EQ(saved.replica_buffers.tensors.size(), 2u) << "queue and seen";
  EXPECT_TRUE(at::equal(ViewOf(*saved.model.Find("queue")), ViewOf(*queues)[0]));

  RunOptions rest = Options(replicas, 5);
  rest.restore = &saved;
  const RunResult resumed = testing::Run(std::move(rest), Queue);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_EQ(resumed.recorder.losses(),
            (std::vector<double>{through.recorder.losses()[3], through.recorder.losses()[4]}));
  for (int r = 0; r < replicas; ++r) {
    for (const auto& [name, value] : through.replicas[r])
      EXPECT_TRUE(at::equal(value, resumed.replicas[r].at(name))) << name << " of " << r;
  }
}

TEST(PerReplica, OtherNumbersOfReplicasTakeTheSavedOnesInTurn) {
  KeptCheckpoints kept;
  RunOptions first = Options(2, 2);
  first.checkpoints = &kept;
  ASSERT_TRUE(testing::Run(std::move(first), Queue).status.ok());
  const checkpoint::Snapshot& saved = kept.kept.back();
  const at::Tensor queues = ViewOf(*saved.replica_buffers.Find("queue"));
  for (const int replicas : {1, 3, 5}) {
    std::vector<at::Tensor> begun(replicas);
    RunOptions second = Options(replicas, 3);
    second.restore = &saved;
    const auto run = testing::Run(std::move(second), [&](TestProgram& p) {
      Queue(p);
      const auto step = p.on_step;
      p.on_step = [&begun, step](TestProgram& self, Step& of, const data::Batch& batch) {
        begun[of.replica()] = (*self.model)["queue"].clone();
        step(self, of, batch);
      };
    });
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (int r = 0; r < replicas; ++r) EXPECT_TRUE(at::equal(begun[r], queues[r % 2])) << r;
  }
}

// The largest tensor that this thread makes while it lives.
class Largest {
 public:
  Largest() {
    elements_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              const auto inputs = function.inputs();
              const bool makes = std::string_view(function.name()).starts_with("aten::empty");
              if (!makes || inputs.empty() || !inputs[0].isIntList()) return nullptr;
              int64_t elements = 1;
              for (const int64_t size : inputs[0].toIntVector()) elements *= size;
              elements_ = std::max(elements_, elements);
              return nullptr;
            })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~Largest() { at::removeCallback(handle_); }
  int64_t elements() const { return elements_; }

 private:
  static inline thread_local int64_t elements_ = 0;
  uint64_t handle_ = 0;
};

TEST(PerReplica, GatheringTakesTheMemoryOfOneReplica) {
  constexpr int kReplicas = 4;
  constexpr int64_t kElements = 1000;
  auto communicators = collective::MakeThreadCommunicators(kReplicas, std::chrono::minutes(1));
  const Job job = Options(1, 1).job;
  std::vector<int64_t> largest(kReplicas);
  StackedBuffers gathered;
  std::vector<std::thread> threads;
  for (int r = 0; r < kReplicas; ++r) {
    auto replica = Replica::Make(
        job,
        [&] {
          auto program = std::make_unique<TestProgram>();
          Program(
              [r](TestProgram& self, Builder& builder) {
                self.model->buffer("pool", at::full({kElements}, r + 1.));
                builder.buffer("net.pool", BufferMode::kPerReplica);
              },
              [](auto&...) {})(*program);
          return program;
        },
        c10::Device(at::kCPU));
    ASSERT_TRUE(replica.ok()) << replica.status();
    threads.emplace_back([&, r, replica = std::shared_ptr<Replica>(*std::move(replica))] {
      const Largest watch;
      bool wanted = r == 0;
      auto all = GatherReplicaBuffers(*replica, communicators[r].get(), &wanted);
      ASSERT_TRUE(all.ok()) << all.status();
      largest[r] = watch.elements();
      if (r == 0) gathered = *std::move(all);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 1; r < kReplicas; ++r) {
    EXPECT_GE(largest[r], 1) << "it is seen";
    EXPECT_LE(largest[r], kElements);
  }
  ASSERT_EQ(gathered.size(), 1u);
  for (int r = 0; r < kReplicas; ++r)
    EXPECT_TRUE(at::equal(gathered[0].second[r], at::full({kElements}, r + 1.f))) << r;
}

TEST(PerReplica, AnotherShapeDoesNotFit) {
  KeptCheckpoints kept;
  RunOptions first = Options(2, 2);
  first.checkpoints = &kept;
  ASSERT_TRUE(testing::Run(std::move(first), Queue).status.ok());
  RunOptions second = Options(2, 3);
  second.restore = &kept.kept.back();
  const auto run = testing::Run(std::move(second), [&](TestProgram& p) {
    Queue(p);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      build(self, builder);
      (*self.model)["queue"].set_data(at::zeros({5}));
    };
  });
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("\"queue\" of a replica is F32 [4] in it and F32 [5] in the program"));
}

}  // namespace
}  // namespace muster
