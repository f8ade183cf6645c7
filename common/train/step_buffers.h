// What a step does to the modules' buffers: it keeps a copy until the step commits, and averages
// over replicas those of floating point that change (docs/extending.md, "Buffers").
//
// Which ones change is found, not declared: at the end of each step a replica compares those that
// have not changed so far with what they were when the generation began, so that what changes
// between steps is found by the next one. Whether it found any rides in the step's control data,
// and where a replica did all agree on which, and average them from that step on, also after a
// restart (NamedBuffer::averaged). Those that never change are never reduced.
//
// A change that is found late is averaged late, and until then N replicas are not one: so every
// step compares, all small buffers together.
//
// One object for each StepRunner, in its thread. All replicas of the generation make the same
// calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica.h"

namespace muster {

class StepBuffers {
 public:
  // Both must outlive it.
  StepBuffers(Replica* replica, Communicator* communicator);

  // Changes count from the values of now on; without this call, from the first Keep on.
  void Begin();
  // At the step's beginning: keeps the values.
  void Keep();
  // Puts back what Keep saw.
  void PutBack();

  // Every buffer once.
  const std::vector<at::Tensor>& tensors() const { return all_; }

  // What this replica adds to the control data, 1-D float32 tensors on its device: the buffers by
  // `share`, its part of the global batch. A replica without examples has no statistics of its own.
  void AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples);
  // The sum of that over all replicas; may reduce what the control data could not carry.
  absl::Status Apply(const at::Tensor& reduced);

 private:
  struct Averaged {
    at::Tensor tensor;
    bool found = false;  // is averaged
    size_t index = 0;    // into Replica::buffers()
    at::Tensor seen;     // until it is found: the bits that it began with
    // Wider than the control data's float32: reduced on its own.
    bool wide() const { return tensor.scalar_type() == at::kDouble; }
  };
  // Buffers that are compared in one go: not found so far, with elements of one size.
  struct Compared {
    std::vector<at::Tensor> tensors;
    at::Tensor seen;  // the bits of all of them, one behind the other
  };
  // 1 where any of them has changed, float32 [1]; undefined where there are none.
  at::Tensor AnyChanged() const;
  // This replica's part of the mean.
  at::Tensor Part(const Averaged& buffer, at::ScalarType type) const;
  // Reduces these of one type now, and puts the means into the buffers.
  absl::Status ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type);
  absl::Status Include();

  Replica* const replica_;
  Communicator* const communicator_;
  std::vector<at::Tensor> all_, copies_;  // of every buffer
  std::vector<Averaged> averaged_;
  std::vector<Compared> compared_;
  bool begun_ = false;
  double share_ = 0;
  bool has_examples_ = false;
};

// Compares the buffers that the program declared kSame; a ProgramError names the first that is not.
// By all replicas, between steps.
absl::Status CheckSameBuffers(const Replica& replica, Communicator* communicator);

}  // namespace muster
