// The control data of a step: the numbers that replicas reduce in addition to gradients, in the
// step's last reduction. Its parts are the objective, the number of examples, the stop flag, a hash
// of the program's calls, the replicas' waits for input, the increments of metrics, the values that
// the program reports, and the buffers that steps change (StepBuffers). Internal to common/train.
// Used by the replica's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"
#include "common/train/step/loss_terms.h"
#include "common/train/step/step.h"
#include "common/train/step/step_buffers.h"

namespace muster {

class StepControl {
 public:
  // All must outlive this object.
  StepControl(const Replica* replica, collective::Communicator* communicator, StepBuffers* buffers)
      : replica_(replica), communicator_(communicator), buffers_(buffers) {}

  // Begins a step, and discards what was noted in the one before.
  void Begin(const LossWeights& weights);

  // Reports a value like a loss: for each of the `examples` of the micro-batch, or with weights.
  // Throws StatusError.
  void Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights,
              int64_t examples);
  void UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target,
                    const at::Tensor& weights);
  // Notes a call of minimize() for these optimizers. All replicas must make the same calls.
  void NoteMinimize(const std::vector<int>& optimizers);

  // What the step adds to the control data.
  struct Inputs {
    at::Tensor objective_sum;  // May be undefined.
    bool stop = false;
    double input_seconds = 0;
  };
  // Returns this replica's control data: a 1-D float32 tensor on its device. Called once in a step,
  // after the program's calls.
  at::Tensor Make(const Inputs& inputs);
  // Sets the fields of `result` that come from `reduced`, the sum of all replicas' control data.
  // Sets the buffers to their means, for which it may reduce further. Returns a ProgramError if the
  // replicas did not make the same calls.
  absl::Status Read(const at::Tensor& reduced, StepResult* result);

 private:
  struct Reported {
    at::Tensor sum, weights;  // `weights` is defined if it is the divisor.
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
