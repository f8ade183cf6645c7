#include "common/train/callbacks/builtin.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "common/base/logging.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

class PrintLr final : public Callback {
 public:
  void epoch_end(CallbackContext& context) override {
    const auto rate = context.metrics().find("learning_rate");
    if (rate != context.metrics().end())
      LogInfo("epoch {}: learning rate {:.6g}", context.epoch() + 1, rate->second);
  }
  bool decides_in_steps() const override { return false; }
};

class TerminateOnNan final : public Callback {
 public:
  void step_end(CallbackContext& context) override {
    if (std::isfinite(context.loss())) return;
    // JSON has no NaN and no infinity, so the loss is a text. The sign of a NaN has no meaning.
    const std::string loss = std::isnan(context.loss()) ? "nan" : fmt::format("{}", context.loss());
    const std::string why = fmt::format(
        "the loss is {} in step {} (epoch {}), and terminate_on_nan ends training: lower the "
        "learning rate, or look at the data of that step",
        loss, context.step(), context.epoch() + 1);
    context.record("step", context.step());
    context.record("epoch", context.epoch());
    context.record("loss", loss);
    context.text("terminate_on_nan", why);
    throw StatusError(ProgramError(why));
  }
  bool decides_in_steps() const override { return false; }
};

// Logs and records the options of the moving average. The training loop computes the average
// (AverageOptions).
class Ema final : public Callback {
 public:
  explicit Ema(AverageOptions options) : options_(std::move(options)) {}
  void train_begin(CallbackContext& context) override {
    LogInfo(
        "ema: each pass is made with the moving average of the parameters too (decay {}, every {})",
        options_.decay,
        options_.every_steps == 1 ? "step" : fmt::format("{} steps", options_.every_steps));
    context.record("decay", options_.decay);
    context.record("every_steps", options_.every_steps);
  }
  void train_end(CallbackContext& context) override {
    const int64_t last = context.step() / options_.every_steps * options_.every_steps;
    context.record("last_step", last);
    if (last > 0)
      LogInfo("ema: the moving average of the parameters includes those after step {}", last);
  }
  bool decides_in_steps() const override { return false; }

 private:
  const AverageOptions options_;
};

absl::StatusOr<BuiltCallback> MakePrintLr(const std::string&, JsonObject&, const CallbackFacts&) {
  return BuiltCallback{std::make_shared<PrintLr>(), {}};
}

absl::StatusOr<BuiltCallback> MakeTerminateOnNan(const std::string&, JsonObject&,
                                                 const CallbackFacts&) {
  return BuiltCallback{std::make_shared<TerminateOnNan>(), {}};
}

absl::StatusOr<BuiltCallback> MakeEma(const std::string& place, JsonObject& keys,
                                      const CallbackFacts& facts) {
  AverageOptions average;
  keys.Read("decay", &average.decay).Read("every_steps", &average.every_steps);
  if (!(average.decay >= 0 && average.decay < 1))
    keys.Fail("decay", fmt::format("must be from 0 to below 1, is {}", average.decay));
  if (average.every_steps < 1) keys.Fail("every_steps", "must be above 0");
  if (facts.strategy == StrategyKind::kParameterServer) {
    return ConfigurationError(
        fmt::format("{} is ema, but the strategy is parameter_server, where nobody holds all "
                    "weights after each "
                    "step: use multi_worker_mirrored, or leave it out",
                    place));
  }
  if (facts.embeddings) {
    return ConfigurationError(
        fmt::format("{} is ema, but the program has embedding tables, whose rows are not averaged: "
                    "leave it out",
                    place));
  }
  return BuiltCallback{std::make_shared<Ema>(average), average};
}

// Ignores these keys, because job_callbacks.h reads them: they configure the job.
absl::StatusOr<BuiltCallback> MakeTensorboard(const std::string&, JsonObject& keys,
                                              const CallbackFacts&) {
  Json value;
  keys.Read("update_freq", &value).Read("histogram_freq", &value);
  return BuiltCallback{};
}
absl::StatusOr<BuiltCallback> MakeBackup(const std::string&, JsonObject& keys,
                                         const CallbackFacts&) {
  Json value;
  keys.Read("save_freq", &value);
  return BuiltCallback{};
}

const std::map<std::string, CallbackMaker>& Makers() {
  static const std::map<std::string, CallbackMaker> makers = {
      {"backup_and_restore", MakeBackup},
      {"csv_logger", MakeCsvLogger},
      {"early_stopping", MakeEarlyStopping},
      {"ema", MakeEma},
      {"learning_rate_scheduler", MakeScheduler},
      {"model_checkpoint", MakeModelCheckpoint},
      {"print_lr", MakePrintLr},
      {"reduce_lr_on_plateau", MakeReduceLrOnPlateau},
      {"tensorboard", MakeTensorboard},
      {"terminate_on_nan", MakeTerminateOnNan}};
  return makers;
}

}  // namespace

const std::vector<std::string>& BuiltinCallbackNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, maker] : Makers()) all.push_back(name);
    return all;
  }();
  return names;
}

absl::StatusOr<BuiltCallback> MakeBuiltinCallback(const std::string& name, const std::string& place,
                                                  JsonObject& keys, const CallbackFacts& facts) {
  auto built = Makers().at(name)(place, keys, facts);
  MUSTER_RETURN_IF_ERROR(keys.Finish());
  return built;
}

absl::Status CheckSettable(const std::string& place, const std::string& name,
                           const CallbackFacts& facts) {
  for (const auto& rate : facts.rates) {
    if (IsSettable(rate.learning_rate)) continue;
    return ConfigurationError(fmt::format(
        "{} is {}, which sets the learning rate, but that of optimizer \"{}\" follows the schedule "
        "{}: give a number as learning_rate, or leave the callback out",
        place, name, rate.optimizer,
        rate.learning_rate.is_object() ? rate.learning_rate.value("name", Json()).dump()
                                       : rate.learning_rate.dump()));
  }
  return absl::OkStatus();
}

absl::Status CheckWrites(const std::string& place, const std::string& name, const std::string& path,
                         const CallbackFacts& facts) {
  if (facts.writes) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("{} is {}, which writes {} into model_dir, and model_dir is not set: set it, or "
                  "leave the callback out",
                  place, name, path.empty() ? "a file" : path));
}

}  // namespace muster
