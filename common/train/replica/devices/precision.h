// Mixed precision: autocast around a program's code, and the dynamic loss scale of float16.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "common/job/job.h"
#include "common/train/replica/devices/loss_scale.h"

namespace muster {

// During the lifetime of an AutocastScope, its thread runs eligible operations in `precision`. Has
// no effect if `precision` is float32.
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

// During the lifetime of an AutocastOff, autocast is off in its thread, and in the work that
// autograd does for this thread. A backward pass then computes gradients in the types of the
// forward pass.
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

// The loss scale of float16. The scale doubles after 2,000 steps in a row without an overflow, and
// halves at each overflow. The scale is never below kMinLossScale. Except for this minimum, the
// numbers are the defaults of PyTorch's GradScaler. For other precisions the scale is 1. Each
// replica (one device's copy of the model) has one scaler. All replicas see the same reduced
// gradients, so their scalers stay equal without communication.
class LossScaler {
 public:
  explicit LossScaler(Precision precision)
      : active_(precision == Precision::kFloat16), scale_(active_ ? 65536.0 : 1.0) {}
  bool active() const { return active_; }
  double scale() const { return scale_; }
  // Divides the gradients by the scale. Ignores undefined tensors. Returns false if a gradient is
  // not finite. The caller must then skip the update of the step.
  bool Unscale(const std::vector<at::Tensor>& gradients) const;
  // Adapts the scale. Called once at the end of each step, so the scale is constant within a step.
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

// Returns a ProgramError if a float16 run no longer learns. This is the case if `scale` is at its
// minimum and `in_a_row` is at least kMaxSkippedSteps. `in_a_row` is the number of skipped steps in
// a row up to `step`.
absl::Status CheckLossScale(double scale, int64_t in_a_row, int64_t step);

}  // namespace muster
