// Ten examples of a linear function, and a run over them, for tests of the loop's data.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/unit/train/kept.h"

namespace muster::testing {

inline const Data& TheData() {
  static const Data data = [] {
    at::manual_seed(3);
    const at::Tensor x = at::randn({10, 2});
    return Data{x, at::matmul(x, at::tensor({1.f, -2.f})) + 0.5f};
  }();
  return data;
}

// Batches of 4: the last one of an epoch has 2 examples.
inline Job MakeJob(int64_t epochs = 2) {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  job.epochs = epochs;
  return job;
}

using SetUp = std::function<void(TestProgram&)>;

inline RunResult RunIt(const Job& job, int replicas, const SetUp& set_up,
                       KeptCheckpoints* kept = nullptr,
                       const checkpoint::Snapshot* restore = nullptr) {
  RunOptions options;
  options.job = job;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.checkpoints = kept;
  options.restore = restore;
  return Run(std::move(options), set_up);
}

// Returns the snapshot after a conversion to JSON and back, as when a checkpoint is read.
inline checkpoint::Snapshot Reread(const checkpoint::Snapshot& snapshot) {
  checkpoint::Snapshot reread = snapshot;
  auto state =
      checkpoint::SavedStateFromJson(Json::parse(Dump(checkpoint::ToJson(snapshot.state))));
  EXPECT_TRUE(state.ok()) << state.status();
  reread.state = *state;
  return reread;
}

}  // namespace muster::testing
