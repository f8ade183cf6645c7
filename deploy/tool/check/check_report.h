// Prints the output of `muster check`, which tries a job on a single replica: one copy of the
// program on the CPU.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/train/observer.h"
#include "common/train/trainer.h"

namespace muster {

// Counts the steps and passes that training reports. A pass reads a split (training, validation or
// test data) once.
class CheckObserver final : public Observer {
 public:
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  int64_t steps() const { return steps_; }
  // Returns true if there was a pass over the split.
  bool evaluated(Split split) const { return evaluated_.contains(SplitName(split)); }

 private:
  int64_t steps_ = 0;
  std::set<std::string> evaluated_;
};

void PrintJob(const Job& job);
// Prints models, buffers, optimizers with their parameter groups, embedding tables, and named data
// sets.
void PrintProgram(const Replica& replica);
// Prints the files from which a run loads the weights of its models. `are_read` is false if
// training resumes from a checkpoint, because the checkpoint has the weights. Returns an error if
// the job's "load" is invalid.
absl::Status PrintLoads(const Job& job, const Replica& replica, bool are_read);
// Prints the shapes of a batch of `batch` examples for each split.
absl::Status PrintData(const Job& job, const Trainer& trainer, int64_t batch);
// CopyBuffers returns copies of the replica's buffers. ChangedBuffers returns the floating-point
// buffers that differ from the copies in `before`.
std::vector<at::Tensor> CopyBuffers(const Replica& replica);
std::vector<NamedBuffer> ChangedBuffers(const Replica& replica,
                                        const std::vector<at::Tensor>& before);
// Prints the buffers of `changed` for which the program declares no mode (Builder::buffer). The
// replicas of the job will average these buffers.
void PrintAveraged(const std::vector<NamedBuffer>& changed);
void PrintMemory(const Replica& replica);

}  // namespace muster
