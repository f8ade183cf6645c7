// Where a replica's loop gets the batches of one data set from, of known size or not, and where in
// it the loop is.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/extras.h"
#include "common/collective/communicator.h"
#include "common/data/pipeline.h"
#include "common/train/copy_ahead.h"
#include "common/train/damaged_examples.h"
#include "common/train/job.h"
#include "common/train/replica.h"

namespace muster {

// The pipelines that the local replicas of a generation share, so that one set of threads loads for
// all of them. Any thread.
class SharedPipelines {
 public:
  using Make = std::function<std::unique_ptr<data::Pipeline>()>;
  // That of this name; who asks first makes it.
  std::shared_ptr<data::Pipeline> Get(const std::string& name, const Make& make);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<data::Pipeline>> pipelines_ ABSL_GUARDED_BY(mutex_);
};

// What this replica has among those of its process and of the generation.
struct FeedPlace {
  SharedPipelines* shared = nullptr;  // null: the replica loads for itself
  int local_index = 0, local_replicas = 1;
  int replicas_on_host = 1;         // of all processes that share its cores
  DamageLog* damage_log = nullptr;  // null: each feed has its own
};
// What a pipeline may take of the process's cores, one of all local replicas or of this one alone:
// the processes of a host take no more of them together than there are.
int LoaderCores(int cores, const FeedPlace& place, bool of_all_local);

// What a replica trains on.
struct TrainData {
  data::DatasetPtr dataset;              // its share, where it has one of its own
  std::optional<data::Sampler> sampler;  // absent: the size is not known
  int64_t examples = 0;                  // that a pass of all replicas has; -1: not known
  uint64_t seed = 0;
  data::AutoShard auto_shard = data::AutoShard::kData;
  int64_t steps_per_epoch = 0;  // 0: not known
};
// By all replicas of the generation, after the batch size is agreed on. `whole` is what the process
// has made of the split; the files of a share are opened here.
absl::StatusOr<TrainData> MakeTrainData(const Job& job, const Replica& replica,
                                        data::DatasetPtr whole, int64_t global_batch_size,
                                        Communicator* communicator);

// How the job has its examples loaded.
data::PipelineOptions PipelineOptionsOf(const Job& job);

struct FeedOptions {
  std::string name;  // what the user knows the data by
  int64_t batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;           // 0: a whole pass
  std::optional<data::Sampler> sampler;  // absent: as the above say
  data::PipelineOptions pipeline;
  data::Position start, start_data;
  bool distributed = true;
};

// A batch, and what was left out of it over all replicas.
struct FedBatch : data::LoadedBatch {
  DamagedExamples::Report left_out;
  double wait_seconds = 0;  // for this replica's part of it, and for no other replica
};

// For the replica's thread.
class Feed {
 public:
  // `communicator` is of all replicas, and outlives this object.
  Feed(data::DatasetPtr dataset, const FeedOptions& options, const FeedPlace& place,
       Communicator* communicator, at::Device device);
  // Where the size is not known, all replicas agree on what the batch is: an error says where they
  // see different data; likewise on how many examples are there, where damaged ones are left out.
  // Its tensors are on the device.
  absl::StatusOr<FedBatch> Next();

 private:
  absl::Status AgreeOnBatch(const data::LoadedBatch& batch) const;

  const std::string name_;
  const bool sized_;
  Communicator* const communicator_;
  const at::Device device_;
  int local_index_ = 0;  // within the pipeline
  std::optional<DamagedExamples> damaged_;
  std::shared_ptr<const CopyAhead> copies_;  // null: this device needs none
  std::shared_ptr<data::Pipeline> pipeline_;
};

// A data set of the program's own.
class NamedFeed {
 public:
  // `place`: where the state has it.
  NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
            int64_t global_batch_size, const checkpoint::DataPlace& place, const FeedPlace& where,
            Communicator* communicator, at::Device device);
  // False once at the end of each pass, unless it repeats.
  absl::StatusOr<bool> Next(FedBatch* loaded);
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
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const TrainData& data,
                                           int64_t global_batch_size, int64_t num_replicas);

}  // namespace muster
