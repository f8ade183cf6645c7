// A CheckpointSink in memory, and runs that are cut at a step and continued from what it kept.
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
  // Which moments it wants besides the last and stopping ones; null: none.
  std::function<bool(const SaveMoment&)> wanted;
  absl::Status drained;  // what Drain returns
  absl::Status owner;    // what CheckOwner returns

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
