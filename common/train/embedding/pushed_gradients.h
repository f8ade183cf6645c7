// Pushes the gradients of one optimizer to parameter servers. Internal to this folder.
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
  // Pushes the buffers too, if the step commits with this call.
  void LaunchAll(const at::Tensor& control) override;
  // Waits for the parameters. Several optimizers share one push.
  absl::Status Finish(at::Tensor* control) override;
  const std::vector<at::Tensor>& gradients() const override { return gradients_; }
  bool used(int index) const override;
  double norm() const override { return norm_; }
  void Cancel() override;
  int64_t control_capacity() const override { return INT64_MAX; }  // Control data is not sent.
  bool updates() const override { return true; }
  bool launched() const override { return exchange_->open_; }

 private:
  // Clipping and the finite check need all gradients before the first one is sent.
  bool whole() const;
  std::vector<at::Tensor> Written() const;

  ParameterExchange* const exchange_;
  const int optimizer_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;  // Empty unless whole() is true.
  std::vector<bool> fired_;            // Has a gradient in this micro-batch.
  bool early_ = false, launching_ = false, all_launched_ = false;
  bool twice_ = false;  // As in GradientBuckets.
  bool norm_wanted_ = false;
  double norm_ = 0;
};

}  // namespace muster
