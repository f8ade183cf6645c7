// A CheckpointSink that keeps snapshots in memory.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/train/state/checkpointing.h"
#include "tests/unit/train/test_program.h"

namespace muster::testing {

class KeptCheckpoints : public CheckpointSink {
 public:
  // Returns whether to save at a moment that is neither the last nor a stop. Null: never.
  std::function<bool(const SaveMoment&)> wanted;
  absl::Status drained;  // The result of Drain.
  absl::Status owner;    // The result of CheckOwner.

  bool Wanted(const SaveMoment& moment) override {
    moments.push_back(moment);
    return moment.last || moment.stopping || (wanted && wanted(moment));
  }
  void Save(checkpoint::Snapshot snapshot) override { kept.push_back(std::move(snapshot)); }
  absl::Status CheckOwner() const override { return owner; }
  absl::Status Drain() override {
    ++drains;
    return drained;
  }

  std::vector<SaveMoment> moments;
  std::vector<checkpoint::Snapshot> kept;
  int drains = 0;
};

}  // namespace muster::testing
