#include "common/train/replica/devices/precision.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>

namespace muster {

AutocastScope::AutocastScope(Precision precision, c10::Device device)
    : type_(device.type()), active_(precision != Precision::kFloat32) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(type_);
  was_type_ = at::autocast::get_autocast_dtype(type_);
  at::autocast::set_autocast_enabled(type_, true);
  at::autocast::set_autocast_dtype(type_,
                                   precision == Precision::kBFloat16 ? at::kBFloat16 : at::kHalf);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // Autocast caches casts of weights while a scope exists. A later step must not use them.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, was_enabled_);
  at::autocast::set_autocast_dtype(type_, was_type_);
}

AutocastOff::AutocastOff(c10::Device device)
    : type_(device.type()), was_enabled_(at::autocast::is_autocast_enabled(type_)) {
  if (was_enabled_) at::autocast::set_autocast_enabled(type_, false);
}

AutocastOff::~AutocastOff() {
  if (was_enabled_) at::autocast::set_autocast_enabled(type_, true);
}

bool LossScaler::Unscale(const std::vector<at::Tensor>& gradients) const {
  if (!active_) return true;
  std::vector<at::Tensor> defined;
  std::copy_if(gradients.begin(), gradients.end(), std::back_inserter(defined),
               [](const at::Tensor& g) { return g.defined(); });
  if (defined.empty()) return true;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(defined[0].device());
  at::Tensor found = at::zeros({1}, options);
  const at::Tensor inverse = at::full({1}, 1.0 / scale_, options);
  at::_amp_foreach_non_finite_check_and_unscale_(defined, found, inverse);
  return found.item<float>() == 0;
}

void LossScaler::Advance(bool overflowed) {
  if (!active_) return;
  if (overflowed) {
    scale_ = std::max(kMinLossScale, scale_ / 2);
    good_steps_ = 0;
  } else if (++good_steps_ >= 2000) {
    scale_ *= 2;
    good_steps_ = 0;
  }
}

absl::Status CheckLossScale(double scale, int64_t in_a_row, int64_t step) {
  if (scale > kMinLossScale || in_a_row < kMaxSkippedSteps) return absl::OkStatus();
  return ProgramError(fmt::format(
      "the float16 gradients of {} steps in a row, up to step {}, were not finite, and the loss "
      "scale "
      "is {}, its least, so that nothing is learned any more: set \"precision\" to \"bfloat16\" or "
      "\"float32\", lower the learning rate, or look at the data of these steps",
      in_a_row, step, kMinLossScale));
}

}  // namespace muster
