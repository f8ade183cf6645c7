// Mixed precision: autocast around a program's code, and the dynamic loss scale that float16 needs.
// One object a replica.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "common/train/job.h"
#include "common/train/loss_scale.h"

namespace muster {

// While it lives, this thread runs eligible operations in the lower precision.
class AutocastScope {
 public:
  AutocastScope(Precision precision, c10::Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::DeviceType type_;
  const bool active_;
  bool was_enabled_ = false;
  at::ScalarType was_type_ = at::kFloat;
};

// While it lives, this thread (and what autograd runs for it) does not: gradients are computed in
// the types that the forward pass had.
class AutocastOff {
 public:
  explicit AutocastOff(c10::Device device);
  ~AutocastOff();
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  const c10::DeviceType type_;
  const bool was_enabled_;
};

// The scale grows by 2 after 2,000 good steps and halves on an overflow, down to kLeastLossScale
// (PyTorch's GradScaler defaults, but for the least). Scale 1 for other precisions. All replicas
// see the same reduced gradients, so their scalers stay equal without talking.
class LossScaler {
 public:
  explicit LossScaler(Precision precision)
      : active_(precision == Precision::kFloat16), scale_(active_ ? 65536.0 : 1.0) {}
  bool active() const { return active_; }
  double scale() const { return scale_; }
  // Divides the gradients by the scale; false if one is not finite: no update then. Undefined
  // gradients are left alone.
  bool Unscale(const std::vector<at::Tensor>& gradients) const;
  // Once a step, when it commits: the scale is one and the same throughout a step.
  void Advance(bool overflowed);

  std::vector<double> state() const { return {scale_, good_steps_}; }
  void set_state(const std::vector<double>& state) {
    scale_ = state.at(0), good_steps_ = state.at(1);
  }

 private:
  const bool active_;
  double scale_;
  double good_steps_ = 0;
};

// A ProgramError where float16 learns nothing any more: the scale cannot go lower, and `in_a_row`
// steps, of which `step` is the last, were skipped.
absl::Status CheckLossScale(double scale, int64_t in_a_row, int64_t step);

}  // namespace muster
