// The gradient sink of one optimizer that pushes to parameter servers. ParameterExchange makes it.
// Internal to this folder.
#pragma once

#include <vector>

#include "common/train/embedding/parameter_exchange.h"

namespace muster {

class PushedGradients final : public GradientSink {
 public:
  PushedGradients(ParameterExchange* exchange, int optimizer);
  ~PushedGradients() override { Cancel(); }

  void Begin(const Reduction& reduction) override;
  void BeginBackward(bool last, bool overlap = true) override;
  void OnGradient(int index) override;
  void EndBackward() override { launching_ = false; }
  void Scale(double factor) override;
  // A defined `control` means that the step commits with this call. The buffers are then pushed
  // too.
  void LaunchAll(const at::Tensor& control) override;
  // Blocks until the new parameters have arrived. Several optimizers share one push.
  absl::Status Finish(at::Tensor* control) override;
  const std::vector<at::Tensor>& gradients() const override { return gradients_; }
  bool used(int index) const override;
  double norm() const override { return norm_; }
  void Cancel() override;
  int64_t control_capacity() const override { return INT64_MAX; }  // Control data is not sent.
  bool updates() const override { return true; }
  bool launched() const override { return exchange_->open_; }

 private:
  // Returns true if all gradients must be complete before the first is sent: for clipping, or for
  // the check of float16 gradients.
  bool whole() const;
  std::vector<at::Tensor> Written() const;

  ParameterExchange* const exchange_;
  const int optimizer_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;  // Undefined tensors unless whole() is true.
  std::vector<bool> fired_;            // True for a parameter with a gradient in this micro-batch.
  bool early_ = false, launching_ = false, all_launched_ = false;
  bool twice_ = false;  // See GradientBuckets::twice_.
  bool norm_wanted_ = false;
  double norm_ = 0;
};

}  // namespace muster
