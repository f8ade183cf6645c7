// What `muster check` prints.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/train/job.h"
#include "common/train/membership.h"
#include "common/train/trainer.h"

namespace muster {

// What training says of itself.
class CheckObserver final : public Observer {
 public:
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  int64_t steps() const { return steps_; }
  // A pass over it was made.
  bool evaluated(Split split) const { return evaluated_.contains(SplitName(split)); }

 private:
  int64_t steps_ = 0;
  std::set<std::string> evaluated_;
};

void PrintJob(const Job& job);
// Models, buffers, optimizers with their groups, tables, data sets besides the splits.
void PrintProgram(const Replica& replica);
// The weights that a run begins with. An error is one of the job's "load".
absl::Status PrintLoads(const Job& job, const Replica& replica, bool are_read);
// One batch of `batch` examples of each split.
absl::Status PrintData(const Job& job, const Trainer& trainer, int64_t batch);
// Copies of the replica's buffers, and those of floating point that are others since.
std::vector<at::Tensor> CopyBuffers(const Replica& replica);
std::vector<NamedBuffer> ChangedBuffers(const Replica& replica,
                                        const std::vector<at::Tensor>& before);
// Which of these replicas average without a declaration.
void PrintAveraged(const std::vector<NamedBuffer>& changed);
void PrintMemory(const Replica& replica);

}  // namespace muster
