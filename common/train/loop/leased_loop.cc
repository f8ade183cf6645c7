#include "common/train/loop/leased_loop.h"

#include <fmt/format.h>

namespace muster {
namespace {

absl::Status NotHere(const std::string& call, const char* instead) {
  return ProgramError(
      fmt::format("{}, but workers of a parameter-server job do not meet: {}", call, instead));
}

}  // namespace

bool LeasedLoop::NextOf(DatasetHandle, data::Batch*) {
  throw StatusError(NotHere("next was called for a dataset besides the splits",
                            "the chief leases examples of the splits alone"));
}

void LeasedLoop::Finish() {
  throw StatusError(NotHere("finish was called", "the chief ends the job, as max_steps says"));
}

std::map<std::string, double> LeasedLoop::Evaluate(Split) {
  throw StatusError(
      NotHere("evaluate was called", "the chief has them evaluate at the end of each epoch"));
}

Nested LeasedLoop::Reduce(ReduceOp, const Nested&, std::optional<int64_t>) {
  throw StatusError(
      NotHere("reduce was called", "use report() or a metric, which the chief adds up"));
}

Nested LeasedLoop::Gather(const Nested&, int64_t) {
  throw StatusError(
      NotHere("gather was called", "use report() or a metric, which the chief adds up"));
}

std::vector<Nested> LeasedLoop::LocalResults(const Nested& value) { return {Detached(value)}; }

void LeasedLoop::CheckSteps(int64_t steps) {
  if (steps == 1) return;
  throw StatusError(NotHere(fmt::format("next was called for {} steps over a batch", steps),
                            "a lease is one step, so make them within it"));
}

absl::Status LeasedLoop::ReturnedEarly() {
  return NotHere(
      "run() returned before next() was false",
      "the chief ends a parameter-server job, so call next() until it does, or set max_steps");
}

}  // namespace muster
