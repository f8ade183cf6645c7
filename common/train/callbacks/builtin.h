// The built-in callbacks. They have the same names and keys in the job file as in Keras
// (docs/callbacks.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/strategy_kind.h"
#include "common/train/callbacks/callback_host.h"
#include "muster/json.h"

namespace muster {

// The properties of a run that determine the allowed callbacks and their configuration.
struct CallbackFacts {
  StrategyKind strategy = StrategyKind::kMirrored;
  bool validates = false;   // True if the run has a validation split.
  bool writes = false;      // True if the run has a model_dir.
  bool embeddings = false;  // True if the program has embedding tables.
  // The learning rate of each optimizer, from the job or the program.
  std::vector<CallbackHostOptions::Rate> rates;
};

// The options of an exponential moving average of the weights. The training loop updates the
// average on every replica (one device's copy of the model).
struct AverageOptions {
  std::string name;         // Name of the callback that owns the average.
  double decay = 0.99;      // average = decay * average + (1 - decay) * weights.
  int64_t every_steps = 1;  // Steps between two updates.
};

struct BuiltCallback {
  // Null if the entry of the job needs no callback. For example, the entry "tensorboard" only
  // configures the job.
  std::shared_ptr<Callback> callback;
  // Set if the callback keeps a moving average.
  std::optional<AverageOptions> average;
};

const std::vector<std::string>& BuiltinCallbackNames();
// Makes a built-in callback from one entry of the job's "callbacks". `keys` has all keys of the
// entry except "name". `place` is the entry's position in the job file, for error messages.
// Returns the error of the JSON reader for a wrong key or type. Returns a ConfigurationError that
// names the place and the fix for any other mistake. REQUIRES: `name` is one of
// BuiltinCallbackNames().
absl::StatusOr<BuiltCallback> MakeBuiltinCallback(const std::string& name, const std::string& place,
                                                  JsonObject& keys, const CallbackFacts& facts);

// ---- One function for each built-in callback, with the arguments of MakeBuiltinCallback.

using CallbackMaker = absl::StatusOr<BuiltCallback> (*)(const std::string& place, JsonObject& keys,
                                                        const CallbackFacts& facts);
absl::StatusOr<BuiltCallback> MakeEarlyStopping(const std::string& place, JsonObject& keys,
                                                const CallbackFacts& facts);
absl::StatusOr<BuiltCallback> MakeReduceLrOnPlateau(const std::string& place, JsonObject& keys,
                                                    const CallbackFacts& facts);
absl::StatusOr<BuiltCallback> MakeScheduler(const std::string& place, JsonObject& keys,
                                            const CallbackFacts& facts);
absl::StatusOr<BuiltCallback> MakeCsvLogger(const std::string& place, JsonObject& keys,
                                            const CallbackFacts& facts);
absl::StatusOr<BuiltCallback> MakeModelCheckpoint(const std::string& place, JsonObject& keys,
                                                  const CallbackFacts& facts);

// Returns an error if a schedule sets the learning rate of an optimizer (IsSettable). The callback
// `name`, which sets learning rates, is not allowed in this case.
absl::Status CheckSettable(const std::string& place, const std::string& name,
                           const CallbackFacts& facts);
// Returns an error if the run has no model_dir. The callback `name` needs model_dir to write the
// file `path`.
absl::Status CheckWrites(const std::string& place, const std::string& name, const std::string& path,
                         const CallbackFacts& facts);

}  // namespace muster
