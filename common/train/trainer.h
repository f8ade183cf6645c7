// Trains a job's program on this process's replicas: builds them once, then runs them through one
// generation after another.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "common/train/job.h"
#include "common/train/membership.h"
#include "common/train/replica.h"

namespace muster {

struct TrainerOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // one replica each
  std::vector<Observer*>
      observers;  // told by rank 0's first replica only; must outlive the trainer
};

class Trainer {
 public:
  // Builds the replicas and datasets. Errors: ProgramError, ConfigurationError, DataError.
  static absl::StatusOr<std::unique_ptr<Trainer>> Make(TrainerOptions options);
  ~Trainer();

  int num_replicas() const { return static_cast<int>(replicas_.size()); }
  // Trains to the end, one thread a replica. The verdict: OK, Preempted after an agreed stop, or
  // what went wrong.
  absl::Status Run(Membership* membership);

 private:
  friend class LoopImpl;
  explicit Trainer(TrainerOptions options) : options_(std::move(options)) {}
  absl::Status MakeDatasets();
  absl::Status RunGeneration(Generation* generation, Membership* membership);

  const TrainerOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<Split, data::DatasetPtr> datasets_;
  int64_t global_batch_size_ = 0;  // fixed at the first generation
  int64_t last_step_ = 0;
};

}  // namespace muster
