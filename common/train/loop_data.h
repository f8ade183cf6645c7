// Where a replica's loop gets the batches of one data set from, of known size or not, and where in
// it the loop is.
#pragma once

#include <memory>
#include <string>

#include "common/checkpoint/extras.h"
#include "common/collective/communicator.h"
#include "common/data/pipeline.h"
#include "common/train/job.h"
#include "common/train/replica.h"

namespace muster {

struct FeedOptions {
  std::string name;  // what the user knows the data by
  int64_t batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;  // 0: a whole pass
  uint64_t seed = 0;
  data::Position start, start_data;
  bool distributed = true;
};

// For the replica's thread.
class Feed {
 public:
  // `communicator` is of all replicas, and outlives this object.
  Feed(data::DatasetPtr dataset, const FeedOptions& options, Communicator* communicator,
       at::Device device);
  // Where the size is not known, all replicas agree on what the batch is: an error says where they
  // see different data. Its tensors are on the device.
  absl::StatusOr<data::LoadedBatch> Next();

 private:
  absl::Status AgreeOnBatch(const data::LoadedBatch& batch) const;

  const std::string name_;
  const bool sized_;
  Communicator* const communicator_;
  const at::Device device_;
  std::unique_ptr<data::Pipeline> pipeline_;
};

// A data set of the program's own.
class NamedFeed {
 public:
  // `place`: where the state has it.
  NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
            int64_t global_batch_size, const checkpoint::DataPlace& place,
            Communicator* communicator, at::Device device);
  // False once at the end of each pass, unless it repeats.
  absl::StatusOr<bool> Next(data::Batch* batch);
  // Of what comes next.
  const checkpoint::DataPlace& place() const { return place_; }

 private:
  const bool repeats_;
  checkpoint::DataPlace place_;
  Feed feed_;
};

// The global batches of training data of known size. The job's drop_remainder goes before the
// program's.
data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size);
bool DropsRemainder(const Job& job, const Replica& replica);
// How many steps an epoch has; 0: the data does not tell.
int64_t StepsPerEpoch(const Job& job, const Replica& replica, int64_t examples,
                      int64_t global_batch_size);
// How many steps the job makes; without epochs and max_steps it is one epoch. 0: not known.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);
// What schedules count by; a ConfigurationError where an epoch would have no step. `num_replicas`
// are those of the run's first start.
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const Replica& replica, int64_t examples,
                                           int64_t global_batch_size, int64_t num_replicas);

}  // namespace muster
