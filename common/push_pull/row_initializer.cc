#include "common/push_pull/row_initializer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/hash.h"

namespace muster {
namespace {

const std::vector<std::string> kInitializerNames = {"zeros", "constant", "uniform", "normal"};

double Unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }  // [0, 1)

}  // namespace

void Initialize(const Initializer& how, uint64_t seed, uint64_t key, std::span<float> row) {
  uint64_t state = SplitMix64(seed) ^ SplitMix64(key);
  for (float& element : row) {
    switch (how.kind) {
      case Initializer::Kind::kZeros:
        element = 0;
        break;
      case Initializer::Kind::kConstant:
        element = static_cast<float>(how.scale);
        break;
      case Initializer::Kind::kUniform:
        element = static_cast<float>(how.scale * (2 * Unit(state = SplitMix64(state)) - 1));
        break;
      case Initializer::Kind::kNormal: {  // Box and Muller
        const double radius = std::sqrt(-2 * std::log(1 - Unit(state = SplitMix64(state))));
        element = static_cast<float>(
            how.scale * radius * std::cos(2 * std::numbers::pi * Unit(state = SplitMix64(state))));
        break;
      }
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

}  // namespace muster
