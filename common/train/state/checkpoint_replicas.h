// Replicas of one process that evaluate or predict with a checkpoint. They do not train.
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

  // Restores the models of all replicas. Returns a ConfigurationError if the snapshot does not fit.
  // It names both programs if the snapshot is from another program.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Runs `work(i)` for each replica i, with an equal share of the cores. Replica 0 runs in the
  // caller's thread, and each other replica in a thread of its own. If `work` fails, the replica's
  // thread calls `failed` at once. If several replicas fail, returns an error that a replica caused
  // itself rather than one that it received from another replica.
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
