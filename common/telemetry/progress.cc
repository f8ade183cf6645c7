#include "common/telemetry/progress.h"

#include <cmath>

namespace muster {
namespace {

using Kind = ProgressState::Kind;

constexpr Duration kLineInterval = std::chrono::seconds(10);
constexpr Duration kTick = std::chrono::seconds(1);
constexpr const char* kKindNames[] = {"step", "evaluate", "epoch", "end"};

}  // namespace

Json ProgressToJson(const ProgressState& state) {
  Json metrics = Json::object();
  for (const auto& [name, value] : state.metrics) {
    // JSON has no numbers for NaN and infinities.
    metrics[name] = std::isfinite(value) ? Json(value) : Json(std::to_string(value));
  }
  return {{"kind", kKindNames[static_cast<int>(state.kind)]},
          {"split", state.split},
          {"epoch", state.epoch},
          {"epochs", state.epochs},
          {"step", state.step},
          {"total_steps", state.total_steps},
          {"done", state.done},
          {"total", state.total},
          {"examples_per_second", state.examples_per_second},
          {"seconds_left", state.seconds_left},
          {"wait_share", state.wait_share},
          {"input_share", state.input_share},
          {"seconds", state.seconds},
          {"metrics", metrics}};
}

absl::StatusOr<ProgressState> ProgressFromJson(const Json& json) {
  ProgressState state;
  std::string kind;
  Json metrics = Json::object();
  JsonObject object(json, "progress");
  object.Read("kind", &kind)
      .Read("split", &state.split)
      .Read("epoch", &state.epoch)
      .Read("epochs", &state.epochs)
      .Read("step", &state.step)
      .Read("total_steps", &state.total_steps)
      .Read("done", &state.done)
      .Read("total", &state.total)
      .Read("examples_per_second", &state.examples_per_second)
      .Read("seconds_left", &state.seconds_left)
      .Read("wait_share", &state.wait_share)
      .Read("input_share", &state.input_share)
      .Read("seconds", &state.seconds)
      .Read("metrics", &metrics);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  bool known = false;
  for (int i = 0; i < static_cast<int>(std::size(kKindNames)); ++i) {
    if (kind != kKindNames[i]) continue;
    state.kind = static_cast<Kind>(i);
    known = true;
  }
  if (!known || !metrics.is_object()) {
    return ConfigurationError("progress: 'kind' is unknown, or 'metrics' is not an object");
  }
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_number()) {
      state.metrics[name] = value.get<double>();
    } else if (value.is_string()) {
      state.metrics[name] = std::strtod(value.get_ref<const std::string&>().c_str(), nullptr);
    }
  }
  return state;
}

std::vector<std::string> ProgressDisplay::Update(const ProgressState& state, MonotonicTime now) {
  std::vector<std::string> lines;
  const bool pass_ended = state.kind == Kind::kEpoch;
  // The first line also appears after an interval, because the rate is unknown before.
  if (!last_line_) last_line_ = now;
  const bool due = !terminal_ && state.kind == Kind::kStep && now - *last_line_ >= kLineInterval;
  if (pass_ended || due) {
    lines.push_back(RenderProgressLine(state));
    last_line_ = now;
  }
  if (state.kind == Kind::kEnd) {
    state_.reset();
  } else if (!pass_ended) {
    state_ = state;
  }
  at_ = now;
  return lines;
}

std::string ProgressDisplay::Bar(int width, MonotonicTime now) const {
  if (!terminal_ || !state_) return "";
  return RenderProgressBar(*state_, width, now - at_, unicode_);
}

std::optional<MonotonicTime> ProgressDisplay::NextChange(MonotonicTime now) const {
  if (!terminal_ || !state_) return std::nullopt;
  return at_ + ((now - at_) / kTick + 1) * kTick;
}

void RateMeter::Add(int64_t examples, double seconds, double wait_seconds) {
  constexpr double kWindow = 5;  // Seconds.
  const double keep = std::exp(-seconds / kWindow);
  examples_ = keep * examples_ + static_cast<double>(examples);
  steps_ = keep * steps_ + 1;
  seconds_ = keep * seconds_ + seconds;
  wait_ = keep * wait_ + wait_seconds;
}

}  // namespace muster
