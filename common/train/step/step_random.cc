#include "common/train/step/step_random.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <mutex>

#include "common/base/hash.h"

namespace muster {

uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts) {
  for (const uint64_t part : parts) seed = SplitMix64(seed + part);
  return seed;
}

uint64_t StepRandom::Seed(uint64_t purpose) const {
  return MixSeed(job_->seed, {purpose, static_cast<uint64_t>(steps_done_ + 1),
                              static_cast<uint64_t>(options_->replica + options_->worker),
                              static_cast<uint64_t>(micro_batch_)});
}

void StepRandom::BeginMicroBatch(int64_t steps_done, int micro_batch) {
  steps_done_ = steps_done;
  micro_batch_ = micro_batch;
  generator_seeded_ = false;
  if (replica_->device().is_cpu() && !options_->first_local) return;
  at::Generator generator = at::globalContext().defaultGenerator(replica_->device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(Seed(0));
  if (MustNotDraw()) undrawn_ = generator.get_state();
}

at::Generator StepRandom::Generator() {
  if (!generator_.defined()) {
    at::Generator shared = at::globalContext().defaultGenerator(replica_->device());
    std::lock_guard<std::mutex> lock(shared.mutex());
    generator_ = shared.clone();
  }
  if (!generator_seeded_) generator_.set_current_seed(Seed(1));
  generator_seeded_ = true;
  return generator_;
}

bool StepRandom::MustNotDraw() const {
  return job_->deterministic && options_->first_local && options_->local_replicas > 1 &&
         replica_->device().is_cpu();
}

absl::Status StepRandom::CheckNothingDrawn() const {
  if (!MustNotDraw()) return absl::OkStatus();
  at::Generator generator = at::globalContext().defaultGenerator(replica_->device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  if (at::equal(generator.get_state(), undrawn_)) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "deterministic is true, but train_step draws from LibTorch's default generator (dropout, "
      "rand), which the {} CPU replicas of this process share, in any order: draw from "
      "step.generator(), or start a process for each replica",
      options_->local_replicas));
}

}  // namespace muster
