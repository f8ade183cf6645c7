#include "common/job/job_callbacks.h"

#include <fmt/format.h>

#include <limits>

namespace muster {
namespace {

// Returns the number of steps, or 0 for "epoch".
absl::StatusOr<int64_t> Frequency(const std::string& place, const char* key, const Json& value) {
  if (value == "epoch") return 0;
  if (value == "batch") return 1;
  if (value.is_number_integer() && value.get<int64_t>() > 0) return value.get<int64_t>();
  return ConfigurationError(fmt::format(
      "{}.{} must be \"epoch\", or a number of steps above 0, is {}", place, key, value.dump()));
}

absl::Status ApplyTensorboard(const std::string& place, const Json& entry,
                              SummaryOptions* summary) {
  if (entry.contains("log_dir")) {
    return ConfigurationError(fmt::format(
        "{}.log_dir is given, but TensorBoard's folder is model_dir: leave it out", place));
  }
  if (const auto freq = entry.find("update_freq"); freq != entry.end()) {
    MUSTER_ASSIGN_OR_RETURN(const int64_t steps, Frequency(place, "update_freq", *freq));
    summary->every_steps = steps > 0 ? steps : std::numeric_limits<int32_t>::max();
  }
  if (const auto freq = entry.find("histogram_freq"); freq != entry.end()) {
    if (!freq->is_number_integer() || freq->get<int64_t>() < 0) {
      return ConfigurationError(fmt::format(
          "{}.histogram_freq must be a number of epochs not below 0, is {}", place, freq->dump()));
    }
    summary->histograms_every_epochs = freq->get<int64_t>();
  }
  return absl::OkStatus();
}

absl::Status ApplyBackup(const std::string& place, const Json& entry, CheckpointOptions* options) {
  if (entry.contains("backup_dir")) {
    return ConfigurationError(fmt::format(
        "{}.backup_dir is given, but checkpoints lie in model_dir: leave it out", place));
  }
  const auto freq = entry.find("save_freq");
  if (freq == entry.end()) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const int64_t steps, Frequency(place, "save_freq", *freq));
  options->every_steps.reset();
  options->every_epochs.reset();
  if (steps > 0) {
    options->every_steps = steps;
  } else {
    options->every_epochs = 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCallbackNames(const Json& callbacks) {
  for (size_t i = 0; i < callbacks.size(); ++i) {
    const Json& entry = callbacks[i];
    if (entry.is_object() && entry.contains("name") && entry.at("name").is_string()) continue;
    return ConfigurationError(fmt::format(
        R"(callbacks[{}] must be an object with a name, such as {{"name": "early_stopping"}}, is {})",
        i, Dump(entry)));
  }
  return absl::OkStatus();
}

absl::Status ApplyCallbacks(Job* job) {
  bool best = false;
  for (size_t i = 0; i < job->callbacks.size(); ++i) {
    const Json& entry = job->callbacks[i];
    const std::string place = fmt::format("callbacks[{}]", i), name = entry.at("name");
    if (name == "tensorboard")
      MUSTER_RETURN_IF_ERROR(ApplyTensorboard(place, entry, &job->summary));
    if (name == "backup_and_restore")
      MUSTER_RETURN_IF_ERROR(ApplyBackup(place, entry, &job->checkpoint));
    const auto monitor = entry.find("monitor");
    if (name != "model_checkpoint" || best || monitor == entry.end() || !monitor->is_string())
      continue;
    const std::string metric = *monitor;
    best = true;
    job->checkpoint.best_of_training = !metric.starts_with("val_");
    job->checkpoint.best = job->checkpoint.best_of_training ? metric : metric.substr(4);
    const auto mode = entry.find("mode");
    if (mode != entry.end() && (*mode == "min" || *mode == "max" || *mode == "auto"))
      job->checkpoint.best_mode = *mode;
  }
  return absl::OkStatus();
}

}  // namespace muster
