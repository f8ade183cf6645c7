// Mixed precision: autocast around a program's code, and the dynamic loss scale of float16.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "common/job/job.h"
#include "common/train/replica/loss_scale.h"

namespace muster {

// While an AutocastScope exists, its thread runs eligible operations in the lower precision.
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

// While an AutocastOff exists, autocast is off in its thread and in autograd's work for that
// thread. Gradients are then computed in the types of the forward pass.
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

// The loss scale of float16. Each replica has one scaler. The scale doubles after 2,000 good steps,
// and halves on an overflow, down to kMinLossScale. These are the defaults of PyTorch's
// GradScaler, except the minimum. For other precisions the scale is 1. All replicas see the same
// reduced gradients, so their scalers stay equal without communication.
class LossScaler {
 public:
  explicit LossScaler(Precision precision)
      : active_(precision == Precision::kFloat16), scale_(active_ ? 65536.0 : 1.0) {}
  bool active() const { return active_; }
  double scale() const { return scale_; }
  // Divides the gradients by the scale, except undefined ones. Returns false if a gradient is not
  // finite. The step must then skip its update.
  bool Unscale(const std::vector<at::Tensor>& gradients) const;
  // Adapts the scale. Called once a step, at its commit, so the scale is constant within a step.
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

// Returns a ProgramError if a float16 run no longer learns: `scale` is at its minimum, and
// `in_a_row`, the number of skipped steps in a row up to `step`, has reached kMaxSkippedSteps.
absl::Status CheckLossScale(double scale, int64_t in_a_row, int64_t step);

}  // namespace muster
