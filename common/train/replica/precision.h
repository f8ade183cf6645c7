// Mixed precision: autocast around a program's code, and the dynamic loss scale of float16. One
// object for each replica.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "common/job/job.h"
#include "common/train/replica/loss_scale.h"

namespace muster {

// While it exists, this thread runs eligible operations in the lower precision.
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

// Turns autocast off while it exists, for this thread and for autograd's work on its behalf.
// Gradients are then computed in the types of the forward pass.
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

// The loss scale of float16. It doubles after 2,000 good steps and halves on an overflow, down to
// kLeastLossScale. The values are PyTorch's GradScaler defaults, except the minimum. The scale is 1
// for other precisions. All replicas see the same reduced gradients, so their scalers stay equal
// without communication.
class LossScaler {
 public:
  explicit LossScaler(Precision precision)
      : active_(precision == Precision::kFloat16), scale_(active_ ? 65536.0 : 1.0) {}
  bool active() const { return active_; }
  double scale() const { return scale_; }
  // Divides the gradients by the scale. Returns false if one is not finite: the step must not
  // update then. Skips undefined gradients.
  bool Unscale(const std::vector<at::Tensor>& gradients) const;
  // Called once a step, at its commit. The scale is constant within a step.
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

// Returns a ProgramError if a float16 run no longer learns: the scale is at its minimum, and the
// last `in_a_row` steps up to `step` were skipped.
absl::Status CheckLossScale(double scale, int64_t in_a_row, int64_t step);

}  // namespace muster
