// The control data of a step: numbers that the replicas reduce in addition to gradients, in the
// last reduction of the step. A replica is one device's copy of the model, with its own thread. The
// control data has the loss, the number of examples, the stop flag, a hash of the program's calls,
// and the time that each replica waited for input. The control data also has the increments of
// metrics, the values that the program reports, and the buffers that steps change (StepBuffers).
// Internal to common/train. Used by the replica's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"
#include "common/train/step/losses/loss_terms.h"
#include "common/train/step/step.h"
#include "common/train/step/step_buffers.h"

namespace muster {

class StepControl {
 public:
  // The arguments must outlive this object.
  StepControl(const Replica* replica, collective::Communicator* communicator, StepBuffers* buffers)
      : replica_(replica), communicator_(communicator), buffers_(buffers) {}

  // Begins a step. Discards the data of the previous step.
  void Begin(const LossWeights& weights);

  // Adds a value that the program reports. `weights` may be undefined. In this case, `value` has
  // one element for each of the `examples` examples of the micro-batch. The values are reduced in
  // the same way as losses. Throws StatusError.
  void Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights,
              int64_t examples);
  // Adds the micro-batch's contribution to the increment of a metric.
  void UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target,
                    const at::Tensor& weights);
  // Records a call of minimize() for these optimizers. All replicas must make the same calls.
  void NoteMinimize(const std::vector<int>& optimizers);

  // Numbers of the step that are part of the control data.
  struct Inputs {
    at::Tensor objective_sum;  // StepLosses::objective_sum. May be undefined.
    bool stop = false;         // True if this process has received a stop request.
    double input_seconds = 0;  // StepPlan::input_seconds.
  };
  // Returns this replica's control data: a 1-D float32 tensor on the replica's device. Called once
  // in a step, after all calls of the program.
  at::Tensor Make(const Inputs& inputs);
  // Reads the sum of all replicas' control data. Sets the fields of `result` that come from the
  // control data. Sets the buffers to their means over the replicas. The means may need further
  // reductions. Returns a ProgramError if the replicas did not make the same calls.
  absl::Status Read(const at::Tensor& reduced, StepResult* result);

 private:
  struct Reported {
    // `sum` is the sum of value * weight. If `sum` must be divided by the sum of the weights,
    // `weights` is the sum of the weights. Otherwise, `weights` is undefined.
    at::Tensor sum, weights;
  };
  void AppendMetrics(std::vector<at::Tensor>* pieces) const;
  void AppendValues(std::vector<at::Tensor>* pieces) const;
  // Appends the buffers, weighted by this replica's share of the examples.
  void AppendBuffers(std::vector<at::Tensor>* pieces);

  const Replica* const replica_;
  collective::Communicator* const communicator_;
  StepBuffers* const buffers_;
  LossWeights weights_;
  std::string calls_;  // The sequence of calls, which must be equal on all replicas.
  std::map<std::string, Reported> values_;
  std::map<int, at::Tensor> increments_;  // Keyed by metric.
};

}  // namespace muster
