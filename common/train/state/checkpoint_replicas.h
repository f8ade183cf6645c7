// The replicas of one process that evaluate or predict with a checkpoint, without training.
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
  // Builds one replica on each device. `job` must outlive them.
  static absl::StatusOr<CheckpointReplicas> Make(const Job& job, const ProgramFactory& factory,
                                                 const std::vector<c10::Device>& devices);

  // Restores all models from the snapshot. If they do not fit and the snapshot is of another
  // program, the ConfigurationError names both programs.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Runs `work` once for each replica, with an equal share of the cores. Replica 0 uses the
  // caller's thread, each other replica a thread of its own. A replica that fails calls `failed` in
  // its thread at once. Returns the first error. An error that a replica caused itself takes
  // precedence over one that it received from its peers.
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
