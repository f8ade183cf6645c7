// What a start of a job would go on with, as the chief decides it.
#pragma once

#include <optional>
#include <string>

#include "common/checkpoint/checkpoint.h"

namespace muster {

struct JobBeginning {
  std::string reason;  // a sentence; "": it begins from nothing
  bool finished = false;
  std::optional<checkpoint::Snapshot> snapshot;
};

}  // namespace muster
