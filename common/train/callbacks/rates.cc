// The callbacks that set learning rates, as Keras' ReduceLROnPlateau and LearningRateScheduler.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/json/json_integer.h"
#include "common/base/logging.h"
#include "common/train/callbacks/monitor.h"

namespace muster {
namespace {

class ReduceLrOnPlateau final : public Callback {
 public:
  struct Options {
    double factor = 0.1, min_lr = 0;
    int64_t patience = 10, cooldown = 0;
  };
  ReduceLrOnPlateau(Monitor monitor, Options options)
      : monitor_(std::move(monitor)), options_(options) {}

  void epoch_end(CallbackContext& context) override {
    const std::optional<double> value = monitor_.Value(context, "reduce_lr_on_plateau");
    if (!value) return;
    if (cooldown_ > 0) {
      --cooldown_;
      wait_ = 0;
    }
    if (monitor_.Improves(*value, best_)) {
      best_ = *value;
      wait_ = 0;
      return;
    }
    if (cooldown_ > 0 || ++wait_ < options_.patience || !Reduce(context)) return;
    cooldown_ = options_.cooldown;
    wait_ = 0;
  }

  Json state() const override {
    return {{"wait", wait_}, {"cooldown", cooldown_}, {"best", NumberOrNull(best_)}};
  }
  void set_state(const Json& state) override {
    wait_ = JsonInteger(state.at("wait"));
    cooldown_ = JsonInteger(state.at("cooldown"));
    best_ = NumberOrNone(state, "best");
  }
  bool decides_in_steps() const override { return false; }

 private:
  // Reduces the rates of all optimizers. Returns false if all rates are at min_lr already.
  bool Reduce(CallbackContext& context) const {
    bool reduced = false;
    for (const std::string& optimizer : context.optimizers()) {
      const double before = context.learning_rate(optimizer);
      // Compares in float32, as Keras does. In double precision, a rate that was set to min_lr may
      // be above min_lr.
      if (static_cast<float>(before) <= static_cast<float>(options_.min_lr)) continue;
      const double rate = std::max(before * options_.factor, options_.min_lr);
      context.set_learning_rate(rate, optimizer);
      LogInfo("epoch {}: reduce_lr_on_plateau sets the learning rate of {} to {:.6g}",
              context.epoch() + 1, optimizer, rate);
      reduced = true;
    }
    return reduced;
  }

  Monitor monitor_;
  const Options options_;
  int64_t wait_ = 0, cooldown_ = 0;
  std::optional<double> best_;
};

class Scheduler final : public Callback {
 public:
  explicit Scheduler(std::function<double(int64_t, double)> schedule)
      : schedule_(std::move(schedule)) {}
  void epoch_begin(CallbackContext& context) override {
    for (const std::string& optimizer : context.optimizers()) {
      const double before = context.learning_rate(optimizer),
                   rate = schedule_(context.epoch(), before);
      if (rate != before) context.set_learning_rate(rate, optimizer);
    }
  }
  bool decides_in_steps() const override { return false; }

 private:
  const std::function<double(int64_t, double)> schedule_;
};

// Reads rates, keyed by the first epoch in which they hold: {"0": 0.1, "5": 0.01}.
std::map<int64_t, double> RatesByEpoch(const Json& values, JsonObject& keys) {
  std::map<int64_t, double> rates;
  if (!values.is_object() || values.empty()) {
    keys.Fail("values", R"(must be rates by their first epoch, such as {"0": 0.1, "5": 0.01})");
    return rates;
  }
  for (const auto& [text, rate] : values.items()) {
    const bool number =
        !text.empty() && text.size() < 10 &&
        std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!number || !rate.is_number() || rate.get<double>() < 0) {
      keys.Fail("values", fmt::format("must be rates not below 0 by their first epoch, from 0, has "
                                      "\"{}\": {}",
                                      text, rate.dump()));
      return rates;
    }
    rates[std::stoll(text)] = rate.get<double>();
  }
  return rates;
}

}  // namespace

std::shared_ptr<Callback> MakeLearningRateScheduler(
    std::function<double(int64_t epoch, double rate)> schedule) {
  return std::make_shared<Scheduler>(std::move(schedule));
}

absl::StatusOr<BuiltCallback> MakeReduceLrOnPlateau(const std::string& place, JsonObject& keys,
                                                    const CallbackFacts& facts) {
  MUSTER_RETURN_IF_ERROR(CheckSettable(place, "reduce_lr_on_plateau", facts));
  MUSTER_ASSIGN_OR_RETURN(Monitor monitor, Monitor::Read(place, keys, facts, 1e-4));
  ReduceLrOnPlateau::Options options;
  keys.Read("factor", &options.factor).Read("min_lr", &options.min_lr);
  keys.Read("patience", &options.patience).Read("cooldown", &options.cooldown);
  if (!(options.factor > 0 && options.factor < 1))
    keys.Fail("factor", fmt::format("must be above 0 and below 1, is {}", options.factor));
  if (!(options.min_lr >= 0)) keys.Fail("min_lr", "must not be below 0");
  if (options.patience < 0) keys.Fail("patience", "must not be below 0");
  if (options.cooldown < 0) keys.Fail("cooldown", "must not be below 0");
  return BuiltCallback{std::make_shared<ReduceLrOnPlateau>(std::move(monitor), options), {}};
}

absl::StatusOr<BuiltCallback> MakeScheduler(const std::string& place, JsonObject& keys,
                                            const CallbackFacts& facts) {
  MUSTER_RETURN_IF_ERROR(CheckSettable(place, "learning_rate_scheduler", facts));
  Json values;
  keys.Read("values", &values);
  const std::map<int64_t, double> rates = RatesByEpoch(values, keys);
  return BuiltCallback{MakeLearningRateScheduler([rates](int64_t epoch, double rate) {
                         const auto next = rates.upper_bound(epoch);
                         return next == rates.begin() ? rate : std::prev(next)->second;
                       }),
                       {}};
}

}  // namespace muster
