// The replicas of a process that evaluates or predicts with a checkpoint. A replica is one device's
// copy of the model. These replicas do not train.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/job/job.h"
#include "common/train/replica/replica.h"
#include "muster/program.h"

namespace muster {

class CheckpointReplicas {
 public:
  // Builds one replica on each device. `job` must outlive the replicas.
  static absl::StatusOr<CheckpointReplicas> Make(const Job& job, const ProgramFactory& factory,
                                                 const std::vector<c10::Device>& devices);

  // Restores the models of all replicas from `snapshot`, the contents of a checkpoint. Returns a
  // ConfigurationError if the snapshot does not fit the program. If the snapshot is from another
  // program, the error names both programs.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Runs `work(i)` for each replica i. Replica 0 runs in the caller's thread, and each other
  // replica in a thread of its own. Each thread gets an equal share of the cores. If `work` fails,
  // the replica's thread calls `failed` at once. If several replicas fail, Run returns the original
  // error, and not an error that only reports the failure of another replica.
  absl::Status Run(const std::function<absl::Status(int)>& work,
                   const std::function<void(const absl::Status&)>& failed);

  int size() const { return static_cast<int>(replicas_.size()); }
  Replica& operator[](int i) { return *replicas_.at(i); }
  const Replica& operator[](int i) const { return *replicas_.at(i); }

 private:
  explicit CheckpointReplicas(const Job& job) : job_(&job) {}
  const Job* job_;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace muster
