// The buffers of a replica's modules during a step. A replica is one device's copy of the model.
// StepBuffers saves the buffers at the start of the step, and restores them if the step is rolled
// back. If steps change a floating-point buffer, StepBuffers averages the buffer over all replicas
// (docs/extending.md, "Buffers"). Buffers that the program declares kSame or kPerReplica are never
// averaged.
//
// Replicas detect which buffers steps change, so that a program need not declare these buffers. At
// the start of a generation (a period of training with fixed members), a replica keeps the values
// of its buffers as the reference. At the end of each step, it compares the buffers with the
// reference. A change between two steps is therefore detected in the next step. The step's control
// data, the numbers in its last reduction, has a flag for a detected change. If any replica sets
// the flag, all replicas agree on the changed buffers. The replicas average these buffers from that
// step on, also after a restart (NamedBuffer::averaged), and no longer compare them. Buffers that
// never change are never reduced.
//
// Every step must make this comparison, because a buffer may differ between replicas from its first
// change on. Small buffers, of up to 65,536 elements, are concatenated and compared in one
// operation for each element size.
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
  // `replica` and `communicator` must outlive this object.
  StepBuffers(Replica* replica, collective::Communicator* communicator);

  // Takes the current values as the reference for detecting changes. If Begin was not called before
  // the first Keep, Keep calls it.
  void Begin();
  // Saves the values at the start of a step.
  void Keep();
  // Restores the values that Keep saved.
  void PutBack();

  // Returns all buffers, each once.
  const std::vector<at::Tensor>& tensors() const { return all_; }

  // Appends this replica's part of the control data to `control`: 1-D float32 tensors on the
  // replica's device. `share` is the replica's fraction of the global batch. The buffers are
  // multiplied by `share`, so that the sum over all replicas is the mean. A replica without
  // examples appends zeros, because it has no statistics.
  void AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples);
  // Sets the buffers to their means over all replicas. `reduced` is the sum over all replicas of
  // the tensors that AppendTo appended. Makes further reductions for float64 buffers and after a
  // newly detected change.
  absl::Status Apply(const at::Tensor& reduced);

 private:
  // A buffer that is averaged if steps change it.
  struct Averaged {
    at::Tensor tensor;
    bool found = false;  // True if a change was detected. The replicas then average the buffer.
    size_t index = 0;    // Index into Replica::buffers().
    at::Tensor seen;     // The bits of the reference value. Undefined if `found` is true.
    // Returns true for a float64 buffer. Such a buffer has a reduction of its own, because the
    // control data is float32.
    bool wide() const { return tensor.scalar_type() == at::kDouble; }
  };
  // Buffers that one operation compares. Their elements have the same size. No change of these
  // buffers has been detected yet.
  struct Compared {
    std::vector<at::Tensor> tensors;
    at::Tensor seen;  // The bits of the reference values, concatenated.
  };
  // Returns a float32 tensor [1], which is 1 if a buffer in compared_ has changed. Returns an
  // undefined tensor if compared_ is empty.
  at::Tensor AnyChanged() const;
  // Returns the buffer times share_, as `type`. Returns zeros if this replica has no examples.
  at::Tensor Weighted(const Averaged& buffer, at::ScalarType type) const;
  // Reduces `buffers` together, as `type`, and sets them to their means.
  absl::Status ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type);
  // Agrees with all replicas on the newly changed buffers, and averages them.
  absl::Status Include();

  Replica* const replica_;
  collective::Communicator* const communicator_;
  std::vector<at::Tensor> all_, copies_;  // One entry for each distinct buffer.
  std::vector<Averaged> averaged_;
  std::vector<Compared> compared_;
  bool begun_ = false;
  double share_ = 0;           // Argument of AppendTo.
  bool has_examples_ = false;  // Argument of AppendTo.
};

// Checks that all replicas have the same values of the buffers that are declared kSame. Returns a
// ProgramError that names the first buffer that differs. All replicas must call this function at
// the same step.
absl::Status CheckSameBuffers(const Replica& replica, collective::Communicator* communicator);

}  // namespace muster
