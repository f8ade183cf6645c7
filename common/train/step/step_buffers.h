// Saves the modules' buffers at the start of a step, to restore them if the step is retried. Also
// averages the floating-point buffers that steps change over all replicas (docs/extending.md,
// "Buffers").
//
// Changing buffers are detected, not declared. At the end of each step a replica compares every
// buffer that is not averaged yet with its value at the start of the generation. A change between
// two steps is thus detected in the next step. Each replica sends a flag in the step's control
// data: 1 if it detected a change. If any replica did, all replicas agree on the buffers that
// changed and average them from that step on, also after a restart (NamedBuffer::averaged). Buffers
// that never change are never reduced.
//
// The replicas' buffers may differ until a change is detected, so every step makes the comparison.
// Buffers of up to 65,536 elements are compared in one operation for each element size.
//
// Each StepRunner has one object and uses it in its own thread. All replicas of the generation make
// the same calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"

namespace muster {

class StepBuffers {
 public:
  // Both must outlive this object.
  StepBuffers(Replica* replica, Communicator* communicator);

  // Makes the current values the reference for changes. Keep calls it if no one has called it
  // before.
  void Begin();
  // Saves the values at the start of a step.
  void Keep();
  // Restores the values that Keep saved.
  void PutBack();

  // All buffers, without duplicates.
  const std::vector<at::Tensor>& tensors() const { return all_; }

  // Appends this replica's part of the control data: 1-D float32 tensors on its device. Multiplies
  // the buffers by `share`, the replica's fraction of the global batch. A replica without examples
  // appends zeros, because it has no statistics.
  void AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples);
  // Writes the means into the buffers. `reduced` is the sum over all replicas of the tensors that
  // AppendTo appended. Makes further reductions for float64 buffers and for newly detected changes.
  absl::Status Apply(const at::Tensor& reduced);

 private:
  struct Averaged {
    at::Tensor tensor;
    bool found = false;  // A change was detected, so the buffer is averaged.
    size_t index = 0;    // Index into Replica::buffers().
    at::Tensor seen;     // The bits of its reference value. Undefined once `found` is true.
    // A float64 buffer is reduced separately, because the control data is float32.
    bool wide() const { return tensor.scalar_type() == at::kDouble; }
  };
  // Buffers that one operation compares. No change is detected yet; all elements have one size.
  struct Compared {
    std::vector<at::Tensor> tensors;
    at::Tensor seen;  // The bits of all of them, concatenated.
  };
  // Returns float32 [1]: 1 if any compared buffer has changed. Undefined if none is compared.
  at::Tensor AnyChanged() const;
  // Returns the buffer times share_, or zeros without examples.
  at::Tensor Part(const Averaged& buffer, at::ScalarType type) const;
  // Converts these buffers to `type`, reduces them together, and writes the means into them.
  absl::Status ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type);
  absl::Status Include();

  Replica* const replica_;
  Communicator* const communicator_;
  std::vector<at::Tensor> all_, copies_;  // One entry for each distinct buffer.
  std::vector<Averaged> averaged_;
  std::vector<Compared> compared_;
  bool begun_ = false;
  double share_ = 0;
  bool has_examples_ = false;
};

// Compares the buffers that are declared kSame across all replicas. Returns a ProgramError that
// names the first buffer that differs. All replicas must call it between the same two steps.
absl::Status CheckSameBuffers(const Replica& replica, Communicator* communicator);

}  // namespace muster
