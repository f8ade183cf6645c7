// The requests of callbacks, as the code that calls callbacks passes them to the code that applies
// them. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/callback_record.h"
#include "muster/handles.h"

namespace muster {

// The requests of hooks since the last decision was taken.
struct CallbackDecision {
  checkpoint::CallbackRecord record;
  // In order: "keep" or "restore", and the callback's name.
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
