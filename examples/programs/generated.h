// Helpers for programs with synthetic examples: random numbers, a base class of datasets, and
// checks of the job's program_args.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <muster/data.h>
#include <muster/json.h>

#include <cstdint>
#include <initializer_list>

namespace muster {

// The random generator SplitMix64 (Steele et al. 2014).
class Random {
 public:
  explicit Random(uint64_t state) : state_(state) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
  }
  // Returns a number in [0, 1).
  float Unit() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }
  // Returns a uniform number with mean 0 and variance 1.
  float Uniform() { return 3.4641016f * (Unit() - 0.5f); }
  // Returns a nearly normal number with mean 0 and variance 1, from a sum of four uniform numbers.
  float Normal() { return 0.5f * (Uniform() + Uniform() + Uniform() + Uniform()); }

 private:
  uint64_t state_;
};

// Base class of datasets that make examples in batches. A subclass implements GetBatch.
class GeneratedDataset : public data::Dataset {
 public:
  explicit GeneratedDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::StatusOr<data::Example> Get(int64_t index, const data::Context& context) const override {
    MUSTER_ASSIGN_OR_RETURN(data::Batch batch, GetBatch({index}, context));
    for (at::Tensor& component : batch) component = component.squeeze(0);
    return batch;
  }

 private:
  const int64_t size_;
};

struct AtLeast {
  const char* name;
  int64_t value, least;
};
// Checks that no value is below its `least`. Reports each smaller value with args.Fail().
inline void Check(JsonObject& args, std::initializer_list<AtLeast> all) {
  for (const auto& [name, value, least] : all)
    if (value < least) args.Fail(name, fmt::format("must be at least {}, is {}", least, value));
}

}  // namespace muster
