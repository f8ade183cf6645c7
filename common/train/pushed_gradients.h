// The gradients of one optimizer on their way to parameter servers. Internal to this folder.
#pragma once

#include <vector>

#include "common/train/parameter_exchange.h"

namespace muster {

class PushedGradients final : public GradientSink {
 public:
  PushedGradients(ParameterExchange* exchange, int optimizer);
  ~PushedGradients() override { Cancel(); }

  void Begin(const Reduction& reduction) override;
  void BeginBackward(bool last) override;
  void OnGradient(int index) override;
  void EndBackward() override { launching_ = false; }
  // Launches what is left, and with the step's commit the buffers; waits for the parameters.
  absl::Status Finish(at::Tensor* control) override;
  const std::vector<at::Tensor>& gradients() const override { return gradients_; }
  void Cancel() override;
  int64_t control_capacity() const override { return INT64_MAX; }  // it does not travel
  bool updates() const override { return true; }
  bool launched() const override { return exchange_->open_; }

 private:
  // Clipping and the finite check need all gradients before the first of them goes.
  bool whole() const;

  ParameterExchange* const exchange_;
  const int optimizer_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;  // where they are wanted whole; else none
  std::vector<bool> fired_;            // in this micro-batch
  bool early_ = false, launching_ = false;
};

}  // namespace muster
