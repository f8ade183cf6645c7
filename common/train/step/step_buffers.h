// The modules' buffers in a step. Keeps a copy until the step commits. Averages over replicas the
// floating-point buffers that change (docs/extending.md, "Buffers").
//
// Changing buffers are detected, not declared. At the end of each step a replica compares the
// buffers that have not changed so far with their values at the start of the generation. A change
// between two steps is thus found in the next step. A flag in the step's control data tells whether
// the replica found any. If one did, all replicas agree on which buffers changed, and average these
// from that step on, also after a restart (NamedBuffer::averaged). Buffers that never change are
// never reduced.
//
// Until a change is found the replicas' buffers differ. So every step compares them. All small
// buffers are compared together.
//
// One object for each StepRunner, used in its thread. All replicas of the generation make the same
// calls.
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

  // Sets the current values as the reference for changes. Without this call, the first Keep does
  // it.
  void Begin();
  // Saves the values at the start of a step.
  void Keep();
  // Restores the values that Keep saved.
  void PutBack();

  // Every buffer once.
  const std::vector<at::Tensor>& tensors() const { return all_; }

  // Appends this replica's part of the control data: 1-D float32 tensors on its device. Buffers are
  // multiplied by `share`, the replica's part of the global batch. A replica without examples has
  // no statistics to contribute.
  void AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples);
  // `reduced` is the sum of these parts over all replicas. May make further reductions for data
  // that the control data could not carry.
  absl::Status Apply(const at::Tensor& reduced);

 private:
  struct Averaged {
    at::Tensor tensor;
    bool found = false;  // It is averaged.
    size_t index = 0;    // Index into Replica::buffers().
    at::Tensor seen;     // Its initial bits. Undefined once it is found.
    // Wider than the control data's float32, so it is reduced separately.
    bool wide() const { return tensor.scalar_type() == at::kDouble; }
  };
  // Buffers that are compared in one operation: not found yet, with elements of one size.
  struct Compared {
    std::vector<at::Tensor> tensors;
    at::Tensor seen;  // The bits of all of them, concatenated.
  };
  // Returns float32 [1]: 1 if any of them has changed. Undefined if there are none.
  at::Tensor AnyChanged() const;
  // Returns this replica's part of the mean.
  at::Tensor Part(const Averaged& buffer, at::ScalarType type) const;
  // Reduces these buffers as one type, and writes the means into them.
  absl::Status ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type);
  absl::Status Include();

  Replica* const replica_;
  Communicator* const communicator_;
  std::vector<at::Tensor> all_, copies_;  // One entry for every buffer.
  std::vector<Averaged> averaged_;
  std::vector<Compared> compared_;
  bool begun_ = false;
  double share_ = 0;
  bool has_examples_ = false;
};

// Compares the buffers declared kSame among all replicas. A ProgramError names the first that
// differs. Called by all replicas, between steps.
absl::Status CheckSameBuffers(const Replica& replica, Communicator* communicator);

}  // namespace muster
