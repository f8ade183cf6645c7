#include "common/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <charconv>

namespace muster::checkpoint {

namespace {
constexpr std::string_view kPrefix = "step-";
}  // namespace

std::string CheckpointName(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

int64_t StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return -1;
  return CheckpointName(step) == name ? step : -1;
}

}  // namespace muster::checkpoint
