// The built-in callbacks, under Keras' names and with Keras' keys (docs/callbacks.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/strategy_kind.h"
#include "common/train/callbacks/callback_host.h"
#include "muster/json.h"

namespace muster {

// Facts about a run. Callbacks are checked against them before training.
struct CallbackFacts {
  StrategyKind strategy = StrategyKind::kMirrored;
  bool validates = false;  // There is a validation split.
  bool writes = false;     // There is a model_dir.
  bool embeddings = false;
  std::vector<CallbackHostOptions::Rate> rates;
};

// A moving average of the weights. The loop maintains it on every replica.
struct AverageOptions {
  std::string name;  // The callback that owns it.
  double decay = 0.99;
  int64_t every_steps = 1;
};

struct BuiltCallback {
  // Null if the entry has no hooks, because it is an alias of a feature that is always on.
  std::shared_ptr<Callback> callback;
  std::optional<AverageOptions> average;
};

const std::vector<std::string>& BuiltinCallbackNames();
// Reads all keys except "name" of one entry of "callbacks". Requires the name of a built-in
// callback. Returns the JSON reader's error, or a ConfigurationError that names the place and the
// fix.
absl::StatusOr<BuiltCallback> MakeBuiltinCallback(const std::string& name, const std::string& place,
                                                  JsonObject& keys, const CallbackFacts& facts);

// ---- Makers, one source file each

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

// Returns OK if a callback may set the rate of every optimizer.
absl::Status CheckSettable(const std::string& place, const std::string& name,
                           const CallbackFacts& facts);
// Checks that a callback can write to `path`. A relative path is resolved against model_dir.
absl::Status CheckWrites(const std::string& place, const std::string& name, const std::string& path,
                         const CallbackFacts& facts);

}  // namespace muster
