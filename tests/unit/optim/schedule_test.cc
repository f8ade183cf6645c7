#include "common/optim/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr ScheduleContext kContext = {.steps_per_epoch = 10, .total_steps = 100};

std::unique_ptr<Schedule> ScheduleFrom(const char* spec, ScheduleContext context = kContext) {
  auto schedule = MakeSchedule(Json::parse(spec), context);
  if (!schedule.ok()) throw std::runtime_error(schedule.status().ToString());
  return *std::move(schedule);
}

TEST(Schedule, Constant) {
  for (const char* spec : {"0.25", R"({"name": "constant", "initial": 0.25})"}) {
    const auto schedule = ScheduleFrom(spec);
    EXPECT_DOUBLE_EQ(schedule->At(0), 0.25);
    EXPECT_DOUBLE_EQ(schedule->At(1'000'000'000), 0.25);
  }
  EXPECT_DOUBLE_EQ(ScheduleFrom("0")->At(3), 0);
}

TEST(Schedule, Step) {
  for (const char* spec :
       {R"({"name": "step", "initial": 0.8, "gamma": 0.5, "every_steps": 20})",
        R"({"name": "step", "initial": 0.8, "gamma": 0.5, "every_epochs": 2})"}) {
    const auto schedule = ScheduleFrom(spec);
    EXPECT_DOUBLE_EQ(schedule->At(0), 0.8);
    EXPECT_DOUBLE_EQ(schedule->At(19), 0.8);
    EXPECT_DOUBLE_EQ(schedule->At(20), 0.4);
    EXPECT_DOUBLE_EQ(schedule->At(39), 0.4);
    EXPECT_DOUBLE_EQ(schedule->At(40), 0.2);
    EXPECT_DOUBLE_EQ(schedule->At(200), 0.8 * std::pow(0.5, 10));
  }
}

TEST(Schedule, PiecewiseKeepsTheBoundaryAsKerasDoes) {
  for (const char* spec :
       {R"({"name": "piecewise", "boundary_steps": [20, 55], "values": [1, 0.5, 0.1]})",
        R"({"name": "piecewise", "boundary_epochs": [2, 5.5], "values": [1, 0.5, 0.1]})"}) {
    const auto schedule = ScheduleFrom(spec);
    EXPECT_DOUBLE_EQ(schedule->At(0), 1);
    EXPECT_DOUBLE_EQ(schedule->At(20), 1);
    EXPECT_DOUBLE_EQ(schedule->At(21), 0.5);
    EXPECT_DOUBLE_EQ(schedule->At(55), 0.5);
    EXPECT_DOUBLE_EQ(schedule->At(56), 0.1);
    EXPECT_DOUBLE_EQ(schedule->At(1000), 0.1);
  }
  EXPECT_DOUBLE_EQ(
      ScheduleFrom(R"({"name": "piecewise", "boundary_steps": [], "values": [3]})")->At(5), 3);
}

TEST(Schedule, Exponential) {
  const auto schedule = ScheduleFrom(
      R"({"name": "exponential", "initial": 0.1, "decay_rate": 0.5, "decay_steps": 20})");
  EXPECT_DOUBLE_EQ(schedule->At(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule->At(5), 0.1 * std::pow(0.5, 0.25));
  EXPECT_DOUBLE_EQ(schedule->At(20), 0.05);
  EXPECT_DOUBLE_EQ(schedule->At(60), 0.0125);
  const auto stairs = ScheduleFrom(R"({"name": "exponential", "initial": 0.1, "decay_rate": 0.5,
                               "decay_epochs": 2, "staircase": true})");
  EXPECT_DOUBLE_EQ(stairs->At(19), 0.1);
  EXPECT_DOUBLE_EQ(stairs->At(20), 0.05);
  EXPECT_DOUBLE_EQ(stairs->At(59), 0.025);
}

TEST(Schedule, CosineOverTheWholeJobByDefault) {
  const auto schedule = ScheduleFrom(R"({"name": "cosine", "initial": 0.4})");
  EXPECT_DOUBLE_EQ(schedule->At(0), 0.4);
  EXPECT_DOUBLE_EQ(schedule->At(25), 0.2 * (1 + std::cos(std::numbers::pi / 4)));
  EXPECT_NEAR(schedule->At(50), 0.2, 1e-15);
  EXPECT_NEAR(schedule->At(99), 0.2 * (1 + std::cos(0.99 * std::numbers::pi)), 1e-15);
  EXPECT_NEAR(schedule->At(100), 0, 1e-15);
  EXPECT_NEAR(schedule->At(5000), 0, 1e-15);
}

TEST(Schedule, CosineAlphaAndLength) {
  for (const char* spec :
       {R"({"name": "cosine", "initial": 1, "alpha": 0.1, "decay_steps": 40})",
        R"({"name": "cosine", "initial": 1, "alpha": 0.1, "decay_epochs": 4})"}) {
    const auto schedule = ScheduleFrom(spec, {.steps_per_epoch = 10, .total_steps = 0});
    EXPECT_DOUBLE_EQ(schedule->At(0), 1);
    EXPECT_NEAR(schedule->At(20), 0.9 * 0.5 + 0.1, 1e-15);
    EXPECT_DOUBLE_EQ(schedule->At(40), 0.1);
    EXPECT_DOUBLE_EQ(schedule->At(41), 0.1);
  }
}

TEST(Schedule, WarmUpIsLinearAndDecayFollowsIt) {
  for (const char* spec : {R"({"name": "cosine", "initial": 0.4, "warmup_steps": 20})",
                           R"({"name": "cosine", "initial": 0.4, "warmup_epochs": 2})"}) {
    const auto schedule = ScheduleFrom(spec);
    EXPECT_DOUBLE_EQ(schedule->At(0), 0);
    EXPECT_DOUBLE_EQ(schedule->At(5), 0.1);
    EXPECT_DOUBLE_EQ(schedule->At(19), 0.4 * 19 / 20);
    EXPECT_DOUBLE_EQ(schedule->At(20), 0.4);
    EXPECT_NEAR(schedule->At(60), 0.2, 1e-15);  // 80 steps are left after it
    EXPECT_NEAR(schedule->At(100), 0, 1e-15);
  }
  const auto from = ScheduleFrom(R"({"name": "constant", "initial": 1, "warmup_steps": 4,
                             "warmup_from": 0.2})");
  EXPECT_DOUBLE_EQ(from->At(0), 0.2);
  EXPECT_DOUBLE_EQ(from->At(2), 0.6);
  EXPECT_DOUBLE_EQ(from->At(4), 1);
  const auto steps =
      ScheduleFrom(R"({"name": "step", "initial": 1, "every_steps": 10, "warmup_steps": 5})");
  EXPECT_DOUBLE_EQ(steps->At(14), 1);
  EXPECT_DOUBLE_EQ(steps->At(15), 0.1);
  const auto exponential = ScheduleFrom(R"({"name": "exponential", "initial": 1, "decay_rate": 0.5,
                                    "decay_steps": 10, "warmup_steps": 5})");
  EXPECT_DOUBLE_EQ(exponential->At(5), 1);
  EXPECT_DOUBLE_EQ(exponential->At(15), 0.5);
}

TEST(Schedule, BoundariesCountFromTheStartOfTraining) {
  const auto schedule =
      ScheduleFrom(R"({"name": "piecewise", "boundary_steps": [20], "values": [1, 0.5],
                                 "warmup_steps": 10})");
  EXPECT_DOUBLE_EQ(schedule->At(5), 0.5);
  EXPECT_DOUBLE_EQ(schedule->At(10), 1);
  EXPECT_DOUBLE_EQ(schedule->At(20), 1);
  EXPECT_DOUBLE_EQ(schedule->At(21), 0.5);
}

TEST(Schedule, AWarmUpLongerThanTheJob) {
  const auto schedule = ScheduleFrom(R"({"name": "cosine", "initial": 1, "warmup_steps": 200})");
  EXPECT_DOUBLE_EQ(schedule->At(100), 0.5);
}

TEST(Schedule, LengthsThatAreNotGivenAreTheRestOfTheJob) {
  for (const char* spec :
       {R"({"name": "linear", "initial": 1, "warmup_steps": 20})",
        R"({"name": "polynomial", "initial": 1, "end": 0, "warmup_epochs": 2})"}) {
    const auto schedule = ScheduleFrom(spec);
    EXPECT_DOUBLE_EQ(schedule->At(20), 1) << spec;
    EXPECT_DOUBLE_EQ(schedule->At(60), 0.5) << spec;
    EXPECT_DOUBLE_EQ(schedule->At(100), 0) << spec;
    EXPECT_DOUBLE_EQ(schedule->At(1000), 0) << spec;
  }
  const auto cycle = ScheduleFrom(R"({"name": "one_cycle", "max": 1})");
  EXPECT_NEAR(cycle->At(0), 0.04, 1e-15);
  EXPECT_DOUBLE_EQ(cycle->At(29), 1);
  EXPECT_NEAR(cycle->At(99), 0.04 / 1e4, 1e-15);
  EXPECT_NEAR(cycle->At(1'000'000), 0.04 / 1e4, 1e-15);  // torch refuses what is beyond
}

TEST(Schedule, OneCycleWithLegsOfNoLength) {
  for (const char* pct : {"0", "0.01", "0.5", "1"}) {
    for (const char* three : {"false", "true"}) {
      if (std::string(pct) == "1" && std::string(three) == "true") continue;
      const auto schedule =
          ScheduleFrom(fmt::format(R"({{"name": "one_cycle", "max": 1, "pct_start": {},
                                                  "three_phase": {}}})",
                                   pct, three)
                           .c_str());
      double most = 0;
      for (int64_t step = 0; step <= 100; ++step) {
        EXPECT_TRUE(schedule->At(step) >= 0 && schedule->At(step) <= 1) << pct << " " << step;
        most = std::max(most, schedule->At(step));
      }
      // With a first leg of no length three phases begin with the third, as in torch.
      if (std::string(pct) != "0" || std::string(three) == "false") {
        EXPECT_GT(most, 0.95) << pct;
      }
    }
  }
}

TEST(Schedule, RampHoldDecayGoesByWholeEpochs) {
  const auto schedule =
      ScheduleFrom(R"({"name": "ramp_hold_decay", "start": 0.1, "peak": 0.5, "floor": 0.1,
      "ramp_epochs": 2, "hold_epochs": 1, "decay_rate": 0.5})");
  const std::vector<double> by_epoch = {0.1, 0.3, 0.5, 0.5, 0.3, 0.2, 0.15};
  for (size_t epoch = 0; epoch < by_epoch.size(); ++epoch)
    for (const int64_t step : {0, 9})
      EXPECT_DOUBLE_EQ(schedule->At(static_cast<int64_t>(epoch) * 10 + step), by_epoch[epoch]);
}

// A schedule of a program.
class Falling : public Schedule {
 public:
  explicit Falling(double by) : by_(by) {}
  double At(int64_t steps) const override { return 1 - by_ * static_cast<double>(steps); }

 private:
  const double by_;
};

NamedSchedules OfProgram() {
  return {{"falling", [](JsonObject& keys, const ScheduleContext& context) {
             double by = 1 / static_cast<double>(context.steps_per_epoch);
             keys.Read("by", &by);
             if (by > 1) keys.Fail("by", "must not be above 1");
             return std::make_unique<Falling>(by);
           }}};
}

TEST(Schedule, OfAProgram) {
  const auto make = [](const char* spec) {
    auto made =
        MakeSchedule(Json::parse(spec), {.steps_per_epoch = 10, .num_replicas = 3}, OfProgram());
    if (!made.ok()) throw std::runtime_error(std::string(Message(made.status())));
    return *std::move(made);
  };
  EXPECT_DOUBLE_EQ(make(R"({"name": "falling"})")->At(5), 0.5);
  EXPECT_DOUBLE_EQ(make(R"({"name": "falling", "by": 0.01})")->At(5), 0.95);
  EXPECT_DOUBLE_EQ(make(R"({"name": "falling", "scale_with_replicas": true})")->At(5), 1.5);
  const auto warmed = make(R"({"name": "falling", "warmup_steps": 4})");
  EXPECT_DOUBLE_EQ(warmed->At(2), 0.5);
  EXPECT_DOUBLE_EQ(warmed->At(4), 1);
  EXPECT_DOUBLE_EQ(warmed->At(9), 0.5);
  EXPECT_THROW(make(R"({"name": "falling"})")->At(20), std::domain_error);
  for (const auto& [spec, sentence] : std::vector<std::pair<const char*, const char*>>{
           {R"({"name": "faling"})", "did you mean \"falling\""},
           {R"({"name": "falling", "bi": 1})", "did you mean \"by\""},
           {R"({"name": "falling", "by": 2})", "learning_rate.by must not be above 1"}}) {
    const auto made = MakeSchedule(Json::parse(spec), kContext, OfProgram());
    EXPECT_EQ(ExitCodeOf(made.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(made.status())), HasSubstr(sentence));
  }
}

TEST(Schedule, WhichScaleWithReplicas) {
  EXPECT_TRUE(ScalesWithReplicas(Json::parse(R"({"name": "x", "scale_with_replicas": true})")));
  EXPECT_FALSE(ScalesWithReplicas(Json::parse(R"({"name": "x", "scale_with_replicas": false})")));
  EXPECT_FALSE(ScalesWithReplicas(Json::parse(R"({"name": "x"})")));
  EXPECT_FALSE(ScalesWithReplicas(0.1));
}

TEST(Schedule, Refusals) {
  const std::vector<std::pair<const char*, const char*>> refusals = {
      {R"("cosine")", "learning_rate must be a number or an object"},
      {"null", "learning_rate must be a number or an object"},
      {"-0.1", "learning_rate.initial must not be below 0, is -0.1"},
      {R"({"name": "cosin", "initial": 1})", "learning_rate.name is \"cosin\", did you mean"},
      {R"({"initial": 1})", "learning_rate.name must be one of constant, step"},
      {R"({"name": "cosine"})", "learning_rate.initial is missing"},
      {R"({"name": "cosine", "initial": 1, "alfa": 0})", "did you mean \"alpha\""},
      {R"({"name": "cosine", "initial": 1, "decay_steps": 0})", "decay_steps must be above 0"},
      {R"({"name": "cosine", "initial": 1, "decay_steps": 1, "decay_epochs": 1})",
       "decay_epochs cannot be combined with decay_steps"},
      {R"({"name": "step", "initial": 1})", "every_steps is missing: give it or every_epochs"},
      {R"({"name": "exponential", "initial": 1, "decay_steps": 2})", "decay_rate is missing"},
      {R"({"name": "piecewise", "values": [1]})", "boundary_steps or boundary_epochs must be"},
      {R"({"name": "piecewise", "boundary_steps": [5, 5], "values": [1, 1, 1]})", "must ascend"},
      {R"({"name": "piecewise", "boundary_steps": [5], "values": [1]})", "one more than"},
      {R"({"name": "piecewise", "boundary_steps": [5], "values": [1, -1]})", "not be below 0"},
      {R"({"name": "constant", "initial": 1, "warmup_steps": -1})",
       "warmup_steps must not be below 0, is -1"},
      {R"({"name": "constant", "initial": 1, "scale_with_replicas": 2})",
       "learning_rate.scale_with_replicas"},
      {R"({"name": "exponential", "initial": 1, "decay_rate": 0.5, "decay_steps": 1, "floor": 2})",
       "floor must not be above initial, 1, and is 2"},
      {R"({"name": "linear", "initial": 1, "end": -1})", "end must not be below 0, is -1"},
      {R"({"name": "polinomial", "initial": 1})", "did you mean \"polynomial\""},
      {R"({"name": "polynomial", "initial": 1, "power": 0})", "power must be above 0, is 0"},
      {R"({"name": "cosine_restarts", "initial": 1})", "first_decay_steps is missing"},
      {R"({"name": "cosine_restarts", "initial": 1, "first_decay_steps": 5, "t_mul": 0.5})",
       "t_mul must not be below 1, is 0.5"},
      {R"({"name": "one_cycle"})", "learning_rate.max is missing: the highest rate"},
      {R"({"name": "one_cycle", "max": 1, "pct_start": 2})", "must be between 0 and 1, is 2"},
      {R"({"name": "one_cycle", "max": 1, "div_factor": 0})", "div_factor must be above 0, is 0"},
      {R"({"name": "one_cycle", "max": 1, "anneal_strategy": "sin"})",
       "must be cos or linear, is \"sin\""},
      {R"({"name": "one_cycle", "max": 1, "warmup_steps": 5})",
       "warmup_steps does not go with one_cycle, which rises"},
      {R"({"name": "inverse_sqrt", "initial": 1, "timescale_steps": 0})",
       "timescale_steps must be above 0, is 0"},
      {R"({"name": "ramp_hold_decay", "decay_rate": 0.5})", "learning_rate.peak is missing"},
      {R"({"name": "ramp_hold_decay", "peak": 1})", "learning_rate.decay_rate is missing"},
      {R"({"name": "ramp_hold_decay", "peak": 1, "decay_rate": 1, "hold_epochs": -1})",
       "hold_epochs must not be below 0, is -1"},
      {R"({"name": "constant", "initial": 1, "warmup_from": -1})", "warmup_from must not be"},
  };
  for (const auto& [spec, sentence] : refusals) {
    const auto schedule = MakeSchedule(Json::parse(spec), kContext);
    ASSERT_FALSE(schedule.ok()) << spec;
    EXPECT_EQ(ExitCodeOf(schedule.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(schedule.status())), HasSubstr(sentence));
  }
  const auto unknown_length = MakeSchedule(Json::parse(R"({"name": "cosine", "initial": 1})"),
                                           {.steps_per_epoch = 10, .total_steps = 0});
  EXPECT_THAT(std::string(Message(unknown_length.status())), HasSubstr("decay_steps is missing"));
  const auto no_epochs =
      MakeSchedule(Json::parse(R"({"name": "ramp_hold_decay", "peak": 1, "decay_rate": 0.5})"),
                   {.steps_per_epoch = 0});
  EXPECT_THAT(std::string(Message(no_epochs.status())), HasSubstr("set steps_per_epoch"));
}

}  // namespace
}  // namespace muster
