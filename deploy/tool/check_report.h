// Prints the output of `muster check`.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/train/membership.h"
#include "common/train/trainer.h"

namespace muster {

// Receives the reports of training.
class CheckObserver final : public Observer {
 public:
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  int64_t steps() const { return steps_; }
  // Returns true if a pass over the split was made.
  bool evaluated(Split split) const { return evaluated_.contains(SplitName(split)); }

 private:
  int64_t steps_ = 0;
  std::set<std::string> evaluated_;
};

void PrintJob(const Job& job);
// Prints models, buffers, optimizers with their groups, tables, and named data sets.
void PrintProgram(const Replica& replica);
// Prints the files from which the weights of models are loaded. `are_read` is false if training
// resumes from a checkpoint with its own weights. Returns an error if the job's "load" is invalid.
absl::Status PrintLoads(const Job& job, const Replica& replica, bool are_read);
// Prints one batch of `batch` examples of each split.
absl::Status PrintData(const Job& job, const Trainer& trainer, int64_t batch);
// CopyBuffers copies the replica's buffers. ChangedBuffers returns the floating-point buffers that
// have changed since.
std::vector<at::Tensor> CopyBuffers(const Replica& replica);
std::vector<NamedBuffer> ChangedBuffers(const Replica& replica,
                                        const std::vector<at::Tensor>& before);
// Prints which of the changed buffers the replicas will average, because the program declares no
// other mode.
void PrintAveraged(const std::vector<NamedBuffer>& changed);
void PrintMemory(const Replica& replica);

}  // namespace muster
