// The random numbers of a step. Each number is a function of the job's seed, the step, the replica
// and the micro-batch. A replica is one device's copy of the model, with its own thread. A step
// seeds LibTorch's default generator for the device. The step also gives the program a generator
// that belongs to the replica. All CPU replicas of a process share one default generator, and the
// first replica of the process seeds it. Internal to common/train. Used by the replica's thread.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/train/replica/replica.h"
#include "common/train/step/step.h"

namespace muster {

class StepRandom {
 public:
  // The arguments must outlive this object.
  StepRandom(const Replica* replica, const Job* job, const StepRunnerOptions* options)
      : replica_(replica), job_(job), options_(options) {}

  // Begins a micro-batch of step number `steps_done` + 1, and seeds the default generator.
  void BeginMicroBatch(int64_t steps_done, int micro_batch);
  // Returns the generator that belongs to the replica, for Step::generator.
  at::Generator Generator();
  // Returns a ConfigurationError if the program has drawn from the default generator in this
  // micro-batch although MustNotDraw is true.
  absl::Status CheckNothingDrawn() const;

 private:
  // Returns true if the program must not draw from LibTorch's default CPU generator. This is the
  // case in a deterministic job if several replicas share the generator, because the numbers would
  // depend on timing.
  bool MustNotDraw() const;
  // Returns a seed for this micro-batch. Different purposes get different seeds.
  uint64_t Seed(uint64_t purpose) const;

  const Replica* const replica_;
  const Job* const job_;
  const StepRunnerOptions* const options_;
  int64_t steps_done_ = 0;
  int micro_batch_ = 0;
  at::Generator generator_;        // Made on first use.
  bool generator_seeded_ = false;  // True if generator_ is seeded for this micro-batch.
  at::Tensor undrawn_;             // The state of the default generator after seeding.
};

}  // namespace muster
