#include "common/train/replica/gradients/local_gradients.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "common/optim/optimizer.h"
#include "common/train/replica/gradients/gradient_buckets.h"

namespace muster {

LocalGradients::LocalGradients(std::vector<at::Tensor> parameters,
                               collective::Communicator* communicator, int64_t control_capacity)
    : parameters_(std::move(parameters)),
      communicator_(communicator),
      control_capacity_(control_capacity),
      gradients_(parameters_.size()),
      fired_(parameters_.size()) {
  TORCH_CHECK(communicator_->size() == 1, "several replicas have gradients to reduce");
}

LocalGradients::~LocalGradients() { Cancel(); }

void LocalGradients::Begin(const Reduction&) {
  std::fill(gradients_.begin(), gradients_.end(), at::Tensor());
  control_ = at::Tensor();
  launched_ = false;
}

void LocalGradients::BeginBackward(bool /*last*/, bool /*overlap*/) {
  std::fill(fired_.begin(), fired_.end(), false);
}

void LocalGradients::OnGradient(int index) {
  const at::NoGradGuard no_grad;
  const at::Tensor gradient = TakeGradient(parameters_[index]);
  if (!gradient.defined()) return;
  AddGradient(gradient, fired_[index], &gradients_[index]);
  fired_[index] = true;
}

void LocalGradients::EndBackward() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients_.size(); ++i)
    if (fired_[i]) OwnMemory(&gradients_[i]);
}

void LocalGradients::Scale(double factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients_)
    if (gradient.defined()) gradient.mul_(factor);
}

void LocalGradients::LaunchAll(const at::Tensor& control) {
  const at::NoGradGuard no_grad;
  launched_ = true;
  if (!control.defined()) return;
  TORCH_CHECK(control.numel() <= control_capacity_, "control data outgrew its place");
  const at::Device device = parameters_.empty() ? at::Device(at::kCPU) : parameters_[0].device();
  control_ = control.to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  work_ = communicator_->AllReduce(BufferOf(control_), ReduceOp::kSum);
}

absl::Status LocalGradients::Finish(at::Tensor* control) {
  if (!launched_) LaunchAll(*control);
  if (work_ != nullptr) MUSTER_RETURN_IF_ERROR(std::exchange(work_, nullptr)->Wait());
  if (control_.defined()) *control = control_;
  return absl::OkStatus();
}

double LocalGradients::norm() const { return GradientNorm(gradients_); }

void LocalGradients::Cancel() {
  if (work_ != nullptr) (void)std::exchange(work_, nullptr)->Wait();
}

}  // namespace muster
