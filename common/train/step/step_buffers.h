// The buffers of a replica's modules in a step. StepBuffers saves them at the start of the step and
// restores them if the step is rolled back. It also averages, over all replicas, the floating-point
// buffers that steps change (docs/extending.md, "Buffers").
//
// A program does not declare which buffers it changes: replicas detect it. At the end of each step,
// a replica compares its buffers with their values at the start of the generation, except those
// that are averaged already. A change between two steps is therefore detected in the next step. The
// step's control data has a flag, which a replica sets to 1 if it detects a change. If any replica
// sets it, all replicas agree on the changed buffers. They average these buffers from that step on,
// also after a restart (NamedBuffer::averaged). Buffers that never change are never reduced.
//
// Until a change is detected, a buffer may differ between replicas. For this reason every step
// compares. Buffers of up to 65,536 elements are compared together, in one operation for each
// element size.
//
// Each StepRunner has one StepBuffers and uses it in its own thread. All replicas of the generation
// make the same calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"

namespace muster {

class StepBuffers {
 public:
  // Both must outlive this object.
  StepBuffers(Replica* replica, collective::Communicator* communicator);

  // Makes the current values the reference for detecting changes. The first Keep calls it if it was
  // not called before.
  void Begin();
  // Saves the values at the start of a step.
  void Keep();
  // Restores the values that Keep saved.
  void PutBack();

  // All buffers, without duplicates.
  const std::vector<at::Tensor>& tensors() const { return all_; }

  // Appends this replica's part of the control data: 1-D float32 tensors on its device. `share` is
  // the replica's fraction of the global batch, by which the appended values are multiplied. A
  // replica without examples appends zeros, because it has no statistics.
  void AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples);
  // Sets the buffers to their means over all replicas. `reduced` is the sum over all replicas of
  // what AppendTo appended. Makes further reductions for float64 buffers and for newly detected
  // changes.
  absl::Status Apply(const at::Tensor& reduced);

 private:
  struct Averaged {
    at::Tensor tensor;
    bool found = false;  // True if a change was detected. The buffer is then averaged.
    size_t index = 0;    // Index into Replica::buffers().
    at::Tensor seen;     // The bits of the reference value. Undefined if `found` is true.
    // Returns true for a float64 buffer. It is reduced separately, because the control data is
    // float32.
    bool wide() const { return tensor.scalar_type() == at::kDouble; }
  };
  // Buffers that one operation compares. All their elements have the same size, and no change of
  // them is detected yet.
  struct Compared {
    std::vector<at::Tensor> tensors;
    at::Tensor seen;  // The bits of their reference values, concatenated.
  };
  // Returns a float32 tensor [1], which is 1 if a compared buffer has changed. Returns an undefined
  // tensor if no buffer is compared.
  at::Tensor AnyChanged() const;
  // Returns the buffer times share_, or zeros if this replica has no examples.
  at::Tensor Part(const Averaged& buffer, at::ScalarType type) const;
  // Reduces these buffers together, as `type`, and sets them to their means.
  absl::Status ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type);
  absl::Status Include();

  Replica* const replica_;
  collective::Communicator* const communicator_;
  std::vector<at::Tensor> all_, copies_;  // One entry for each distinct buffer.
  std::vector<Averaged> averaged_;
  std::vector<Compared> compared_;
  bool begun_ = false;
  double share_ = 0;
  bool has_examples_ = false;
};

// Compares the buffers that are declared kSame over all replicas. Returns a ProgramError that names
// the first buffer that differs. All replicas must call it at the same step.
absl::Status CheckSameBuffers(const Replica& replica, collective::Communicator* communicator);

}  // namespace muster
