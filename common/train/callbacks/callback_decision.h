// The requests of callbacks. CallbackHost collects them, and the training loop or the director
// applies them. This code does not need LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/callback_record.h"
#include "muster/handles.h"

namespace muster {

// The requests that hooks have made since the last decision.
struct CallbackDecision {
  checkpoint::CallbackRecord record;
  // Requests about weights, in order: "keep" or "restore", and the name of the callback.
  std::vector<std::pair<std::string, std::string>> weights;
  bool save = false;
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

struct CallbackMoment {
  int64_t step = 0, epoch = 0;
  Split split = Split::kTrain;
  double loss = 0;
  std::map<std::string, double> metrics;
};

}  // namespace muster
