// Receives the gradients of one optimizer from the backward pass, and pushes them to parameter
// servers. ParameterExchange makes one object for each optimizer. parameter_exchange.h explains
// chunks and pushes. Threads: see gradient_sink.h. Internal to this folder.
#pragma once

#include <vector>

#include "common/train/exchange/parameter_exchange.h"

namespace muster {

class PushedGradients final : public GradientSink {
 public:
  struct Options {
    int optimizer = 0;  // Index of the program's optimizer.
    ClipOptions clip;
    bool float16 = false;  // True in a float16 run. Gradients may then be infinite.
  };
  // `exchange` and `dense`, the variables of `exchange`, must outlive the object.
  PushedGradients(ParameterExchange* exchange, DenseVariables* dense, const Options& options);
  ~PushedGradients() override { Cancel(); }

  void Begin(const Reduction& reduction) override;
  void BeginBackward(bool last, bool overlap) override;
  void OnGradient(int index) override;
  void EndBackward() override;
  void Scale(double factor) override;
  // If `control` is defined, this is the last push of the step. This push includes the changed
  // buffers.
  void LaunchAll(const at::Tensor& control) override;
  // Blocks until the new parameters have arrived. If several optimizers share one push, the first
  // Finish waits for the whole push.
  absl::Status Finish(at::Tensor* control) override;
  const std::vector<at::Tensor>& gradients() const override { return gradients_; }
  bool used(int index) const override;
  double norm() const override { return norm_; }
  void Cancel() override;
  int64_t control_capacity() const override { return INT64_MAX; }  // Control data is not sent.
  bool on_servers() const override { return true; }
  bool launched() const override { return exchange_->open(); }

 private:
  // Returns the gradients so far: gradients_, or views of the client's memory.
  std::vector<at::Tensor> Written() const;

  ParameterExchange* const exchange_;
  DenseVariables* const dense_;
  const int optimizer_;
  const ClipOptions clip_;
  // True if all gradients must be complete before the first gradient is sent. This is the case if
  // the job clips gradients, or if the run is in float16.
  const bool whole_;
  const std::vector<at::Tensor> parameters_;
  const std::vector<int> variables_;   // Indexed by parameter, as in DenseVariables::variables.
  std::vector<at::Tensor> gradients_;  // Undefined tensors unless whole_ is true.
  std::vector<bool> fired_;            // True for a parameter with a gradient in this micro-batch.
  // `early_` is true if chunks may be pushed during the backward pass. `launching_` is true while
  // each chunk is pushed as soon as it is complete. `all_launched_` is true after LaunchAll.
  bool early_ = false, launching_ = false, all_launched_ = false;
  // True if a parameter has received several gradients in one backward pass. Chunks are then pushed
  // only after the backward pass.
  bool twice_ = false;
  bool norm_wanted_ = false;
  double norm_ = 0;
};

}  // namespace muster
