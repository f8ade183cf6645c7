// The input of a replica's loop: batches of the training data and of the program's named datasets,
// and the position in each dataset. The size of a dataset may be unknown.
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
#include "common/job/job.h"
#include "common/train/damaged_examples.h"
#include "common/train/replica/copy_ahead.h"
#include "common/train/replica/replica.h"

namespace muster {

class TaskMeter;

// The input pipelines of a process in one generation. Its replicas share them, so one set of
// threads loads the batches of all local replicas. Thread-safe.
class SharedPipelines {
 public:
  using Make = std::function<std::unique_ptr<data::Pipeline>()>;
  // Returns the pipeline called `name`. The first call for a name makes it with `make`.
  std::shared_ptr<data::Pipeline> Get(const std::string& name, const Make& make);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<data::Pipeline>> pipelines_ ABSL_GUARDED_BY(mutex_);
};

// A replica's index in its process, and the number of replicas with which it shares the process and
// the host.
struct FeedPlace {
  SharedPipelines* shared = nullptr;  // If null, the replica has a pipeline of its own.
  int local_index = 0, local_replicas = 1;
  int replicas_on_host = 1;         // Replicas of all processes on this host.
  DamageLog* damage_log = nullptr;  // If null, each feed has a log of its own.
  TaskMeter* meter = nullptr;       // Gets the depth of the feeds' queues. May be null.
};
// Returns how many of the host's `cores` a pipeline may use. `of_all_local` is true if one pipeline
// serves all local replicas. All pipelines of a host together use no more than all of its cores.
int LoaderCores(int cores, const FeedPlace& place, bool of_all_local);

// The training data of a replica.
struct TrainData {
  data::DatasetPtr dataset;              // All data, or only this replica's share of the files.
  std::optional<data::Sampler> sampler;  // Absent if the size of the data is unknown.
  int64_t examples = 0;                  // Examples of all replicas in one epoch. -1 if unknown.
  uint64_t seed = 0;
  data::AutoShard auto_shard = data::AutoShard::kData;
  int64_t steps_per_epoch = 0;  // 0 if unknown.
};
// Makes the training data of a replica. `whole` is the complete training split, which all replicas
// of the process share. If each replica reads its own share of the files, opens the files of that
// share. Called by all replicas of the generation, after they have agreed on the batch size.
absl::StatusOr<TrainData> MakeTrainData(const Job& job, const Replica& replica,
                                        data::DatasetPtr whole, int64_t global_batch_size,
                                        collective::Communicator* communicator);

// Returns the job's options for input pipelines.
data::PipelineOptions PipelineOptionsOf(const Job& job);

struct FeedOptions {
  std::string name;  // The user's name of the dataset.
  int64_t batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;           // 0 if an epoch is a whole pass over the data.
  std::optional<data::Sampler> sampler;  // If absent, the options above define the batches.
  data::PipelineOptions pipeline;
  data::Position start, start_data;
  bool distributed = true;
};

// A batch, with a report on the damaged examples that replicas dropped from it.
struct FedBatch : data::LoadedBatch {
  DamagedExamples::Report left_out;
  double wait_seconds = 0;  // Time that this replica waited for its part.
};

// Delivers the batches of one dataset to a replica. Used by the replica's thread.
class Feed {
 public:
  // `communicator` connects all replicas and must outlive this object. The meter need not.
  Feed(data::DatasetPtr dataset, const FeedOptions& options, const FeedPlace& place,
       collective::Communicator* communicator, at::Device device);
  // Returns the next batch, with its tensors on the device. If the size of the data is unknown, all
  // replicas first compare the size of their batches. The error then names the replicas that see
  // different data. If the job drops damaged examples, the replicas also agree on the number of
  // remaining examples.
  absl::StatusOr<FedBatch> Next();

 private:
  absl::Status AgreeOnBatch(const data::LoadedBatch& batch) const;

  const std::string name_;
  const bool sized_;
  collective::Communicator* const communicator_;
  const at::Device device_;
  int local_index_ = 0;  // This replica's index within the pipeline.
  std::optional<DamagedExamples> damaged_;
  std::shared_ptr<const CopyAhead> copies_;  // Null if the device needs no copies.
  std::shared_ptr<data::Pipeline> pipeline_;
};

// Feeds one of the program's own datasets.
class NamedFeed {
 public:
  // `place` is the saved position in the dataset.
  NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
            int64_t global_batch_size, const checkpoint::DataPlace& place, const FeedPlace& where,
            collective::Communicator* communicator, at::Device device);
  // Loads the next batch. At the end of each pass, returns false once, unless the dataset repeats.
  absl::StatusOr<bool> Next(FedBatch* loaded);
  // Returns the position of the next batch.
  const checkpoint::DataPlace& place() const { return place_; }

 private:
  const bool repeats_;
  checkpoint::DataPlace place_;
  Feed feed_;
};

// Returns the sampler of the global batches for training data with a known number of examples. The
// job's drop_remainder overrides the program's.
data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size);
bool DropsRemainder(const Job& job, const Replica& replica);
// Returns the number of steps in an epoch. Returns 0 if neither the job nor the size of the data
// determines it.
int64_t StepsPerEpoch(const Job& job, const Replica& replica, int64_t examples,
                      int64_t global_batch_size);
// Returns the number of steps of the job, or 0 if unknown. A job without epochs and max_steps has
// one epoch.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);
// Returns the context for making schedules. Returns a ConfigurationError if an epoch has no step.
// `num_replicas` is the number of replicas at the run's first start.
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const Replica& replica, int64_t examples,
                                           int64_t global_batch_size, int64_t num_replicas);
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const TrainData& data,
                                           int64_t global_batch_size, int64_t num_replicas);

}  // namespace muster
