// The built-in callbacks. Their names and keys are those of Keras (docs/callbacks.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/strategy_kind.h"
#include "common/train/callbacks/callback_host.h"
#include "muster/json.h"

namespace muster {

// Facts about a run that decide which callbacks are allowed and how they are set up.
struct CallbackFacts {
  StrategyKind strategy = StrategyKind::kMirrored;
  bool validates = false;  // The run has a validation split.
  bool writes = false;     // The run has a model_dir.
  bool embeddings = false;
  std::vector<CallbackHostOptions::Rate> rates;
};

// The options of a moving average of the weights. The training loop updates the average on every
// replica.
struct AverageOptions {
  std::string name;  // Name of the callback that owns the average.
  double decay = 0.99;
  int64_t every_steps = 1;
};

struct BuiltCallback {
  // Null for an entry without hooks: an alias of a feature that is always on.
  std::shared_ptr<Callback> callback;
  std::optional<AverageOptions> average;
};

const std::vector<std::string>& BuiltinCallbackNames();
// Makes a built-in callback from one entry of the job's "callbacks". `keys` has the entry's keys
// except "name". `place` is the entry's place in the job, for errors. Returns the JSON reader's
// error, or a ConfigurationError that names the place and the fix. REQUIRES: `name` is one of
// BuiltinCallbackNames().
absl::StatusOr<BuiltCallback> MakeBuiltinCallback(const std::string& name, const std::string& place,
                                                  JsonObject& keys, const CallbackFacts& facts);

// ---- Functions that make one callback each

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

// Returns an error if callback `name` may not set the rate of some optimizer.
absl::Status CheckSettable(const std::string& place, const std::string& name,
                           const CallbackFacts& facts);
// Returns an error if callback `name` cannot write to `path`. A relative path is resolved against
// model_dir.
absl::Status CheckWrites(const std::string& place, const std::string& name, const std::string& path,
                         const CallbackFacts& facts);

}  // namespace muster
