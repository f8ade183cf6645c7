// The requests of callbacks, such as a stop or a new learning rate. Hooks make the requests. A hook
// is a method of a callback, such as epoch_end. CallbackHost collects the requests. In a
// synchronous job, the training loop applies the requests. In a parameter-server job, the chief
// applies them. This code does not need LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/state/callback_record.h"
#include "muster/handles.h"

namespace muster {

// All requests that hooks have made since the previous CallbackDecision.
struct CallbackDecision {
  // The state of the callbacks after the requests, including the requested stop and learning rates.
  checkpoint::CallbackRecord record;
  // Requests about weights, in the order of the calls. In each pair, the first element is "keep" or
  // "restore", and the second is the callback's name.
  std::vector<std::pair<std::string, std::string>> weights;
  bool save = false;  // True if a hook has requested a checkpoint.
};

enum class Hook {
  kTrainBegin,
  kTrainEnd,
  kEpochBegin,
  kEpochEnd,
  kStepBegin,
  kStepEnd,
  kPassBegin,
  kPassEnd
};

// The values that a hook reads through CallbackContext.
struct CallbackMoment {
  int64_t step = 0, epoch = 0;
  Split split = Split::kTrain;
  double loss = 0;
  std::map<std::string, double> metrics;
};

}  // namespace muster
