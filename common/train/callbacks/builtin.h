// The built-in callbacks, by the names and keys that Keras has for them (docs/callbacks.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/strategy_kind.h"
#include "common/train/callbacks/callback_host.h"
#include "muster/json.h"

namespace muster {

// What callbacks are checked against before training.
struct CallbackFacts {
  StrategyKind strategy = StrategyKind::kMirrored;
  bool validates = false;  // there is a validation split
  bool writes = false;     // there is a model_dir
  bool embeddings = false;
  std::vector<CallbackHostOptions::Rate> rates;
};

// A moving average of the weights: the loop keeps it, on every replica.
struct AverageOptions {
  std::string name;  // whose weights it keeps
  double decay = 0.99;
  int64_t every_steps = 1;
};

struct BuiltCallback {
  // Null: there is nothing to call (an alias of what is always on).
  std::shared_ptr<Callback> callback;
  std::optional<AverageOptions> average;
};

const std::vector<std::string>& BuiltinCallbackNames();
// Reads the keys of one entry of "callbacks" but "name". REQUIRES: the name is a built-in one's.
// Errors are the reader's, or this one's: a ConfigurationError with the place and the mend.
absl::StatusOr<BuiltCallback> MakeBuiltinCallback(const std::string& name, const std::string& place,
                                                  JsonObject& keys, const CallbackFacts& facts);

// ---- By file

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

// OK where every optimizer's rate may be set.
absl::Status CheckSettable(const std::string& place, const std::string& name,
                           const CallbackFacts& facts);
// Where a callback writes `path`; a relative one lies in model_dir.
absl::Status CheckWrites(const std::string& place, const std::string& name, const std::string& path,
                         const CallbackFacts& facts);

}  // namespace muster
