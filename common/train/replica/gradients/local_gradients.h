// The gradient sink of training with one replica, which has nothing to reduce. It keeps the tensors
// that autograd made, and does not copy them into buckets as GradientBuckets does.
//
// Used by the replica's thread, except OnGradient, which autograd may call from its own device
// thread during a backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/gradients/gradient_sink.h"

namespace muster {

class LocalGradients final : public GradientSink {
 public:
  // `parameters` are leaves on one device. REQUIRES: communicator->size() == 1. The communicator
  // must outlive this object.
  LocalGradients(std::vector<at::Tensor> parameters, collective::Communicator* communicator,
                 int64_t control_capacity);
  ~LocalGradients() override;

  void Begin(const Reduction& reduction) override;
  void BeginBackward(bool last, bool overlap) override;
  void OnGradient(int index) override;
  void EndBackward() override;
  void Scale(double factor) override;
  // All-reduces only `control`, if it is defined. With one replica, the values of `control` stay
  // the same. If the communicator was aborted, this all-reduce fails, and Finish returns its error.
  void LaunchAll(const at::Tensor& control) override;
  absl::Status Finish(at::Tensor* control) override;
  const std::vector<at::Tensor>& gradients() const override { return gradients_; }
  bool used(int index) const override { return gradients_[index].defined(); }
  double norm() const override;
  void Cancel() override;
  int64_t control_capacity() const override { return control_capacity_; }

 private:
  const std::vector<at::Tensor> parameters_;
  collective::Communicator* const communicator_;
  const int64_t control_capacity_;
  // Indexed by parameter. A tensor is undefined if its parameter has had no gradient since Begin.
  std::vector<at::Tensor> gradients_;
  std::vector<bool> fired_;  // Indexed by parameter: true if it has a gradient in this pass.
  at::Tensor control_;       // Undefined before LaunchAll.
  bool launched_ = false;
  collective::WorkPtr work_;
};

}  // namespace muster
