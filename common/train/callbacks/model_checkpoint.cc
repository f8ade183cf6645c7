// The callback model_checkpoint, as Keras' ModelCheckpoint: saves the model to a separate file, in
// a format that Python reads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "common/base/files/created_files.h"
#include "common/base/files/files.h"
#include "common/base/logging.h"
#include "common/train/callbacks/monitor.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

constexpr std::string_view kSuffix = ".safetensors";

// Formats a pattern such as "{epoch:02d}-{val_loss:.2f}" like Python's str.format. Returns a
// ConfigurationError that names a field without a value.
absl::StatusOr<std::string> Formatted(const std::string& pattern, int64_t epoch, int64_t step,
                                      const std::map<std::string, double>& metrics) {
  std::string text;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c != '{' && c != '}') {
      text += c;
      continue;
    }
    if (at + 1 < pattern.size() && pattern[at + 1] == c) {
      text += c;
      ++at;
      continue;
    }
    const size_t end = pattern.find('}', at);
    if (c == '}' || end == std::string::npos)
      return ConfigurationError(fmt::format("has a brace without its other one: \"{}\"", pattern));
    const std::string field = pattern.substr(at + 1, end - at - 1);
    const size_t colon = field.find(':');
    const std::string name = field.substr(0, colon);
    std::string spec = "{}";
    if (colon != std::string::npos) spec.insert(1, field, colon, std::string::npos);
    try {
      const auto metric = metrics.find(name);
      if (name == "epoch") {
        text += fmt::format(fmt::runtime(spec), epoch + 1);
      } else if (name == "batch") {
        return ConfigurationError(
            "names {batch}, which in Keras is the batch within its epoch: write {step}, the number "
            "of steps of the whole run");
      } else if (name == "step") {
        text += fmt::format(fmt::runtime(spec), step);
      } else if (metric != metrics.end()) {
        text += fmt::format(fmt::runtime(spec), metric->second);
      } else {
        std::vector<std::string> known = {"epoch", "step"};
        for (const auto& [known_name, value] : metrics) known.push_back(known_name);
        return ConfigurationError(fmt::format(
            "names {{{}}}, of which there is no value; there is {}", name, fmt::join(known, ", ")));
      }
    } catch (const fmt::format_error&) {
      return ConfigurationError(fmt::format("has {{{}}}, which is no format of a number", field));
    }
    at = end;
  }
  return text;
}

class ModelCheckpoint final : public Callback {
 public:
  struct Options {
    std::string filepath;
    bool save_best_only = false, save_weights_only = false;
    int64_t every_steps = 0;  // 0 to save at the end of each epoch.
    std::optional<double> initial_value_threshold;
  };
  ModelCheckpoint(Monitor monitor, Options options)
      : monitor_(std::move(monitor)),
        options_(std::move(options)),
        best_(options_.initial_value_threshold) {}

  void epoch_end(CallbackContext& context) override {
    if (options_.every_steps == 0) Save(context);
  }
  void step_end(CallbackContext& context) override {
    if (options_.every_steps > 0 && context.step() % options_.every_steps == 0) Save(context);
  }

  Json state() const override { return {{"best", NumberOrNull(best_)}}; }
  void set_state(const Json& state) override { best_ = NumberOrNone(state, "best"); }
  bool decides_in_steps() const override {
    return options_.every_steps > 0 && options_.save_best_only;
  }

 private:
  void Save(CallbackContext& context) {
    if (options_.save_best_only) {
      // If the metric is missing, saves nevertheless, as Keras does.
      const std::optional<double> value = monitor_.Value(context, "model_checkpoint");
      if (value && !monitor_.Improves(*value, best_)) return;
      if (value) best_ = value;
    }
    auto name = Formatted(options_.filepath, context.epoch(), context.step(), context.metrics());
    if (!name.ok()) throw StatusError(Annotate(name.status(), "the filepath of model_checkpoint "));
    if (context.model_dir().empty()) return;
    const std::string path = PathFrom(context.model_dir(), *name);
    MakeFolders(std::filesystem::path(path).parent_path());
    try {
      context.save_model(path, !options_.save_weights_only);
    } catch (const StatusError& failed) {
      // The process must also stop if another process owns its model_dir.
      if (ExitCodeOf(failed.status()) == ExitCode::kProgramFailed ||
          absl::IsAborted(failed.status()))
        throw;
      LogWarning("model_checkpoint: {}; training continues", failed.what());
      return;
    }
    LogInfo("epoch {}: model_checkpoint saves {}", context.epoch() + 1, path);
  }

  Monitor monitor_;
  const Options options_;
  std::optional<double> best_;
};

}  // namespace

absl::StatusOr<BuiltCallback> MakeModelCheckpoint(const std::string& place, JsonObject& keys,
                                                  const CallbackFacts& facts) {
  ModelCheckpoint::Options options;
  Json save_freq = "epoch";
  double threshold = 0;
  keys.Read("filepath", &options.filepath).Read("save_best_only", &options.save_best_only);
  keys.Read("save_weights_only", &options.save_weights_only).Read("save_freq", &save_freq);
  if (keys.Has("initial_value_threshold")) options.initial_value_threshold = 0;
  keys.Read("initial_value_threshold", &threshold);
  if (options.initial_value_threshold) options.initial_value_threshold = threshold;
  MUSTER_ASSIGN_OR_RETURN(Monitor monitor, Monitor::Read(place, keys, facts));
  if (save_freq.is_number_integer() && save_freq.get<int64_t>() > 0) {
    options.every_steps = save_freq.get<int64_t>();
  } else if (save_freq != "epoch") {
    keys.Fail("save_freq", fmt::format("must be \"epoch\", or a number of steps above 0, is {}",
                                       save_freq.dump()));
  }
  if (options.every_steps > 0 && facts.strategy == StrategyKind::kParameterServer) {
    return ConfigurationError(fmt::format(
        "{}.save_freq is {}, but with parameter servers nobody holds all weights after a certain "
        "step: set it to \"epoch\"",
        place, options.every_steps));
  }
  if (!options.filepath.ends_with(kSuffix)) {
    keys.Fail("filepath", fmt::format("must end in {}, the format that Muster and Python's "
                                      "libraries read, is \"{}\"",
                                      kSuffix, options.filepath));
  }
  // The names of metrics are not known yet, so the check accepts any name.
  std::map<std::string, double> any;
  for (size_t at = 0; (at = options.filepath.find('{', at)) != std::string::npos; ++at) {
    const size_t end = options.filepath.find_first_of(":}", at);
    if (end != std::string::npos) any[options.filepath.substr(at + 1, end - at - 1)] = 1;
  }
  if (const auto formatted = Formatted(options.filepath, 1, 1, any); !formatted.ok())
    keys.Fail("filepath", Message(formatted.status()));
  MUSTER_RETURN_IF_ERROR(CheckWrites(place, "model_checkpoint", options.filepath, facts));
  return BuiltCallback{std::make_shared<ModelCheckpoint>(std::move(monitor), options), {}};
}

}  // namespace muster
