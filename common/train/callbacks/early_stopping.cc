// The callback early_stopping, as Keras' EarlyStopping.
#include <fmt/format.h>

#include <utility>

#include "common/base/json/json_integer.h"
#include "common/train/callbacks/monitor.h"

namespace muster {
namespace {

class EarlyStopping final : public Callback {
 public:
  struct Options {
    int64_t patience = 0, start_from_epoch = 0;
    std::optional<double> baseline;
    bool restore_best_weights = false;
  };
  EarlyStopping(Monitor monitor, Options options)
      : monitor_(std::move(monitor)), options_(options) {}

  // If an epoch begins after the end of training, the job was extended. If this callback had
  // stopped training, its patience starts again.
  void epoch_begin(CallbackContext& context) override {
    if (!std::exchange(ended_, false)) return;
    if (std::exchange(stopped_, false)) wait_ = 0;
    context.record("stopped_after_epoch", nullptr);
    context.record("restored_from_step", nullptr);
  }

  void epoch_end(CallbackContext& context) override {
    const int64_t epoch = context.epoch();
    const std::optional<double> value = monitor_.Value(context, "early_stopping");
    if (!value || epoch < options_.start_from_epoch) return;
    const bool first = best_epoch_ < 0;
    ++wait_;
    const bool better = monitor_.Improves(*value, best_);
    // The weights of the first epoch are the best until the metric improves.
    if (better || first) {
      best_epoch_ = epoch;
      best_step_ = context.step();
      if (options_.restore_best_weights) context.keep_weights();
    }
    if (better) {
      best_ = *value;
      // Only a value that beats the baseline resets the patience.
      if (!options_.baseline || monitor_.Improves(*value, options_.baseline)) wait_ = 0;
      return;
    }
    if (wait_ < options_.patience || epoch == 0) return;
    stopped_ = true;
    context.record("stopped_after_epoch", epoch + 1);
    context.stop(fmt::format("{} was {:.6g} after epoch {}, and has not been better since",
                             monitor_.name(), best_.value_or(*value), best_epoch_ + 1));
  }

  void train_end(CallbackContext& context) override {
    ended_ = true;
    context.record("monitor", monitor_.name());
    context.record("best", NumberOrNull(best_));
    context.record("best_epoch", best_epoch_ < 0 ? Json() : Json(best_epoch_ + 1));
    if (!options_.restore_best_weights || best_epoch_ < 0 || !context.has_weights()) return;
    context.restore_weights();
    context.record("restored_from_step", best_step_);
  }

  Json state() const override {
    return {{"wait", wait_},           {"best", NumberOrNull(best_)}, {"best_epoch", best_epoch_},
            {"best_step", best_step_}, {"stopped", stopped_},         {"ended", ended_}};
  }
  void set_state(const Json& state) override {
    wait_ = JsonInteger(state.at("wait"));
    best_ = NumberOrNone(state, "best");
    best_epoch_ = JsonInteger(state.at("best_epoch"));
    best_step_ = JsonInteger(state.at("best_step"));
    stopped_ = state.value("stopped", false);  // Older checkpoints have neither key.
    ended_ = state.value("ended", false);
  }
  bool decides_in_steps() const override { return false; }

 private:
  Monitor monitor_;
  const Options options_;
  int64_t wait_ = 0, best_epoch_ = -1, best_step_ = 0;
  std::optional<double> best_;
  bool stopped_ = false, ended_ = false;
};

}  // namespace

absl::StatusOr<BuiltCallback> MakeEarlyStopping(const std::string& place, JsonObject& keys,
                                                const CallbackFacts& facts) {
  MUSTER_ASSIGN_OR_RETURN(Monitor monitor, Monitor::Read(place, keys, facts, 0.0));
  EarlyStopping::Options options;
  if (keys.Has("baseline")) options.baseline = 0;
  double baseline = 0;
  keys.Read("patience", &options.patience).Read("start_from_epoch", &options.start_from_epoch);
  keys.Read("baseline", &baseline).Read("restore_best_weights", &options.restore_best_weights);
  if (options.baseline) options.baseline = baseline;
  if (options.patience < 0) keys.Fail("patience", "must not be below 0");
  if (options.start_from_epoch < 0) keys.Fail("start_from_epoch", "must not be below 0");
  if (options.restore_best_weights && facts.embeddings) {
    return ConfigurationError(fmt::format(
        "{}.restore_best_weights is true, but the program has embedding tables, whose rows are not "
        "remembered: set it to false, and begin from the best checkpoint instead",
        place));
  }
  return BuiltCallback{std::make_shared<EarlyStopping>(std::move(monitor), options), {}};
}

}  // namespace muster
