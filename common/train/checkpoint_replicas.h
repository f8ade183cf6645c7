// The replicas of one process that nobody trains: what evaluates and predicts with a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/train/job.h"
#include "common/train/replica.h"
#include "muster/program.h"

namespace muster {

class CheckpointReplicas {
 public:
  // Builds one on each device. `job` must outlive them.
  static absl::StatusOr<CheckpointReplicas> Make(const Job& job, const ProgramFactory& factory,
                                                 const std::vector<c10::Device>& devices);

  // All models as the snapshot has them. Where they do not fit, and where it is of another program,
  // the ConfigurationError names both.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // `work` for each replica, in a thread of its own with its share of the cores, replica 0 in the
  // caller's. `failed` is called as soon as one has failed, in its thread. Returns what went wrong
  // first of all: what a replica did itself rather than what it heard of others.
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
