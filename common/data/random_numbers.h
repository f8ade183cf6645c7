// Random numbers for one example, as a function of (seed, epoch, index) and a salt. Each use of
// random numbers has its own salt. Internal to common/data. tests/reference/transforms_test.py has
// the same function in Python.
#pragma once

#include <cstdint>

#include "common/base/hash.h"
#include "muster/data.h"

namespace muster::data {

// The generator is SplitMix64. Not thread-safe.
class RandomNumbers {
 public:
  RandomNumbers(const Context& context, int64_t index, uint64_t salt) : state_(context.seed) {
    for (const uint64_t more : {uint64_t{0x61756774} /* "augt" */, salt,
                                static_cast<uint64_t>(context.epoch), static_cast<uint64_t>(index)})
      state_ = SplitMix64(state_) ^ more;
    state_ = SplitMix64(state_);
  }

  uint64_t Word() {
    const uint64_t word = SplitMix64(state_);
    state_ += kSplitMixStep;
    return word;
  }
  // Returns a number in [0, 1). The overload with bounds returns a number in [low, high].
  double Uniform() { return static_cast<double>(Word() >> 11) * 0x1p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  // Returns a number in [0, count). The relative error of the probabilities is at most count /
  // 2^53. REQUIRES: count > 0.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Uniform() * static_cast<double>(count));
  }

 private:
  uint64_t state_;
};

}  // namespace muster::data
