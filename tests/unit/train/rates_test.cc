// Learning rates of whole runs: by the number of replicas, and of a program's own schedules.
#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::LeastSquares;
using testing::RunOptions;
using testing::TestProgram;

RunOptions RatesRunOptions(int replicas, Json learning_rate, int64_t steps) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 4;
  options.job.epochs = 4;
  options.job.max_steps = steps;
  options.job.learning_rate = std::move(learning_rate);
  options.devices.assign(replicas, c10::Device(at::kCPU));
  return options;
}

// 12 examples: three steps an epoch. With the schedule "halves" of its own, which halves each
// epoch.
class Halves : public Schedule {
 public:
  Halves(double from, int64_t length) : from_(from), length_(length) {}
  double At(int64_t steps) const override {
    return from_ / static_cast<double>(int64_t{1} << (steps / length_));
  }

 private:
  const double from_;
  const int64_t length_;
};

void Fill(TestProgram& p) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({12, 2});
  LeastSquares(p, x, x.select(1, 0));
  const auto build = p.on_build;
  p.on_build = [=](TestProgram& self, Builder& builder) {
    build(self, builder);
    builder.schedule("halves", [](JsonObject& keys, const ScheduleContext& context) {
      double from = 0.25;
      keys.Read("from", &from);
      return std::make_unique<Halves>(from, context.steps_per_epoch);
    });
  };
}

std::vector<double> Rates(const testing::RunResult& run) {
  std::vector<double> rates;
  for (const StepReport& step : run.recorder.steps) rates.push_back(step.learning_rate);
  return rates;
}

const Json kScaled = {
    {"name", "linear"}, {"initial", 0.01}, {"decay_steps", 12}, {"scale_with_replicas", true}};

TEST(Rates, ScaleWithReplicas) {
  for (const int replicas : {1, 2, 4}) {
    const auto run = testing::Run(RatesRunOptions(replicas, kScaled, 12), Fill);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const std::vector<double> rates = Rates(run);
    ASSERT_EQ(rates.size(), 12u);
    for (int step = 0; step < 12; ++step)
      EXPECT_NEAR(rates[step], replicas * 0.01 * (12 - step) / 12, 1e-12) << replicas;
  }
}

TEST(Rates, StayThoseOfTheFirstStartOnOtherReplicas) {
  KeptCheckpoints kept;
  RunOptions first = RatesRunOptions(4, kScaled, 5);
  first.checkpoints = &kept;
  ASSERT_TRUE(testing::Run(first, Fill).status.ok());
  for (const int replicas : {1, 3}) {
    RunOptions rest = RatesRunOptions(replicas, kScaled, 12);
    rest.restore = &kept.kept.back();
    const auto run = testing::Run(rest, Fill);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const std::vector<double> rates = Rates(run);
    ASSERT_EQ(rates.size(), 7u);
    for (int step = 5; step < 12; ++step)
      EXPECT_NEAR(rates[step - 5], 4 * 0.01 * (12 - step) / 12, 1e-12);
  }
}

TEST(Rates, OfAProgramsOwnSchedule) {
  const Json halves = {{"name", "halves"}, {"from", 0.5}};
  KeptCheckpoints kept;
  RunOptions options = RatesRunOptions(2, halves, 5);
  options.checkpoints = &kept;
  const auto whole = testing::Run(RatesRunOptions(2, halves, 12), Fill);
  const auto first = testing::Run(options, Fill);
  RunOptions rest = RatesRunOptions(3, halves, 12);
  rest.restore = &kept.kept.back();
  const auto second = testing::Run(rest, Fill);
  ASSERT_TRUE(whole.status.ok() && first.status.ok() && second.status.ok()) << second.status;
  EXPECT_THAT(Rates(whole), ::testing::ElementsAre(0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125,
                                                   0.125, 0.0625, 0.0625, 0.0625));
  std::vector<double> both = Rates(first);
  for (const double rate : Rates(second)) both.push_back(rate);
  EXPECT_EQ(both, Rates(whole)) << "a restart continues it";
  EXPECT_EQ(Rates(testing::Run(
                RatesRunOptions(1, {{"name", "halves"}, {"scale_with_replicas", true}}, 1), Fill)),
            std::vector<double>{0.25});
}

TEST(Rates, Refusals) {
  const auto refusal = [](Json learning_rate, std::function<void(TestProgram&)> fill = Fill) {
    const auto run = testing::Run(RatesRunOptions(1, std::move(learning_rate), 1), std::move(fill));
    return std::pair(ExitCodeOf(run.status), std::string(Message(run.status)));
  };
  const auto misspelt = refusal({{"name", "halfs"}});
  EXPECT_EQ(misspelt.first, ExitCode::kConfiguration);
  EXPECT_THAT(misspelt.second,
              HasSubstr("learning_rate.name is \"halfs\", did you mean \"halves\""));
  EXPECT_THAT(refusal({{"name", "halves"}, {"form", 1}}).second,
              HasSubstr("did you mean \"from\""));
  const auto negative = refusal({{"name", "halves"}, {"from", -1}});
  EXPECT_EQ(negative.first, ExitCode::kProgramFailed);
  EXPECT_THAT(negative.second, HasSubstr("the schedule \"halves\" gives the learning rate -1 after "
                                         "0 steps"));
  const auto taken = refusal(0.1, [](TestProgram& p) {
    Fill(p);
    const auto build = p.on_build;
    p.on_build = [=](TestProgram& self, Builder& builder) {
      build(self, builder);
      builder.schedule("cosine", [](JsonObject&, const ScheduleContext&) {
        return std::unique_ptr<Schedule>();
      });
    };
  });
  EXPECT_EQ(taken.first, ExitCode::kProgramFailed);
  EXPECT_THAT(taken.second, HasSubstr("the schedule name \"cosine\" is a built-in one's"));
}

}  // namespace
}  // namespace muster
