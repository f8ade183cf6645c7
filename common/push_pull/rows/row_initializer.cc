#include "common/push_pull/rows/row_initializer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/hash.h"
#include "common/base/kernels.h"

// Compiled without contraction to fused multiply-adds, like update_kernels.cc.

namespace muster::push_pull {
namespace {

const std::vector<std::string> kInitializerNames = {"zeros", "constant", "uniform", "normal"};

MUSTER_KERNEL_INLINE double Unit(uint64_t bits) {  // In [0, 1).
  return static_cast<double>(static_cast<int64_t>(bits >> 11)) * 0x1p-53;
}

// Each number of a row depends on the previous one, so the rows of a block are drawn in parallel.
constexpr size_t kBlock = 32;

struct Draws {
  double scale;
  uint64_t seed;  // SplitMix64 of the seed.
  int64_t width;
  const uint64_t* keys;
  float* const* rows;
  size_t count;  // At most kBlock.
};

MUSTER_KERNEL_INLINE void DrawUniform(const Draws& draws) {
  uint64_t state[kBlock] = {};
  for (size_t r = 0; r < draws.count; ++r) state[r] = draws.seed ^ SplitMix64(draws.keys[r]);
  for (int64_t i = 0; i < draws.width; ++i) {
    float drawn[kBlock];
    for (size_t r = 0; r < kBlock; ++r) {
      state[r] = SplitMix64(state[r]);
      drawn[r] = static_cast<float>(draws.scale * (2 * Unit(state[r]) - 1));
    }
    for (size_t r = 0; r < draws.count; ++r) draws.rows[r][i] = drawn[r];
  }
}

#define MUSTER_UNIFORM(name, attributes) \
  attributes void name(const Draws& draws) { DrawUniform(draws); }
MUSTER_FOR_EACH_PROCESSOR(MUSTER_UNIFORM, Uniform)

void DrawNormal(const Draws& draws) {  // The Box-Muller transform.
  for (size_t r = 0; r < draws.count; ++r) {
    uint64_t state = draws.seed ^ SplitMix64(draws.keys[r]);
    for (float& element : std::span(draws.rows[r], static_cast<size_t>(draws.width))) {
      const double radius = std::sqrt(-2 * std::log(1 - Unit(state = SplitMix64(state))));
      element = static_cast<float>(
          draws.scale * radius * std::cos(2 * std::numbers::pi * Unit(state = SplitMix64(state))));
    }
  }
}

}  // namespace

void Initialize(const Initializer& how, uint64_t seed, int64_t width,
                std::span<const uint64_t> keys, std::span<float* const> rows) {
  static const auto uniform = MUSTER_CHOOSE_KERNEL(Uniform);
  for (size_t r = 0; r < keys.size(); r += kBlock) {
    const Draws draws{how.scale,       SplitMix64(seed), width,
                      keys.data() + r, rows.data() + r,  std::min(kBlock, keys.size() - r)};
    switch (how.kind) {
      case Initializer::Kind::kZeros:
      case Initializer::Kind::kConstant:
        for (size_t i = 0; i < draws.count; ++i)
          std::fill_n(draws.rows[i], width,
                      how.kind == Initializer::Kind::kZeros ? 0.f : static_cast<float>(how.scale));
        break;
      case Initializer::Kind::kUniform:
        uniform(draws);
        break;
      case Initializer::Kind::kNormal:
        DrawNormal(draws);
        break;
    }
  }
}

absl::StatusOr<Initializer> ParseInitializer(const Json& json) {
  const Json object = json.is_string() ? Json::object({{"name", json}}) : json;
  JsonObject reader(object, "initializer");
  std::string name;
  reader.Read("name", &name);
  Initializer initializer;
  const auto found = std::find(kInitializerNames.begin(), kInitializerNames.end(), name);
  if (found == kInitializerNames.end()) {
    reader.Fail("name", fmt::format("must be one of {}, is \"{}\"",
                                    fmt::join(kInitializerNames, ", "), name));
  } else {
    initializer.kind = static_cast<Initializer::Kind>(found - kInitializerNames.begin());
  }
  if (initializer.kind != Initializer::Kind::kZeros) reader.Read("scale", &initializer.scale);
  if (!std::isfinite(initializer.scale)) reader.Fail("scale", "must be a finite number");
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  return initializer;
}

}  // namespace muster::push_pull
