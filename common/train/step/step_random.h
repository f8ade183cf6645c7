// The random numbers of a step. All of them are a function of the job's seed, the step, the replica
// and the micro-batch. A step seeds LibTorch's default generator of the replica's device, and gives
// the program a generator of its own. CPU replicas of one process share the default generator,
// which the first of them seeds. Internal to common/train. Used by the replica's thread.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/train/replica/replica.h"
#include "common/train/step/step.h"

namespace muster {

class StepRandom {
 public:
  // All must outlive this object.
  StepRandom(const Replica* replica, const Job* job, const StepRunnerOptions* options)
      : replica_(replica), job_(job), options_(options) {}

  // Begins a micro-batch of the step after `steps_done` steps, and seeds the default generator.
  void BeginMicroBatch(int64_t steps_done, int micro_batch);
  // Returns the replica's own generator.
  at::Generator Generator();
  // Returns a ConfigurationError if the program has drawn from the default generator in this
  // micro-batch and must not.
  absl::Status CheckNothingDrawn() const;

 private:
  // Returns true if the program must not draw from LibTorch's default CPU generator: in a
  // deterministic job, if several replicas share it. The numbers would depend on timing.
  bool MustNotDraw() const;
  uint64_t Seed(uint64_t purpose) const;

  const Replica* const replica_;
  const Job* const job_;
  const StepRunnerOptions* const options_;
  int64_t steps_done_ = 0;
  int micro_batch_ = 0;
  at::Generator generator_;        // Made on first use.
  bool generator_seeded_ = false;  // True if it is seeded for this micro-batch.
  at::Tensor undrawn_;             // The default generator's state after seeding.
};

}  // namespace muster
