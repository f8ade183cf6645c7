// Feeds a replica's loop with the batches of one dataset, and tracks the position in it. The size
// of the dataset may be unknown.
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

// The pipelines that the local replicas of a generation share, so that one set of threads loads for
// all of them. Thread-safe.
class SharedPipelines {
 public:
  using Make = std::function<std::unique_ptr<data::Pipeline>()>;
  // Returns the pipeline of this name. The first caller makes it.
  std::shared_ptr<data::Pipeline> Get(const std::string& name, const Make& make);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<data::Pipeline>> pipelines_ ABSL_GUARDED_BY(mutex_);
};

// The replica's place in its process and on its host.
struct FeedPlace {
  SharedPipelines* shared = nullptr;  // Null: the replica loads only for itself.
  int local_index = 0, local_replicas = 1;
  int replicas_on_host = 1;         // Replicas of all processes that share its cores.
  DamageLog* damage_log = nullptr;  // Null: each feed has its own.
};
// Returns how many of the process's cores a pipeline may use. `of_all_local` is true if one
// pipeline serves all local replicas. The processes of a host together use no more than all of its
// cores.
int LoaderCores(int cores, const FeedPlace& place, bool of_all_local);

// The training data of a replica.
struct TrainData {
  data::DatasetPtr dataset;              // The replica's share of the files, if it has its own.
  std::optional<data::Sampler> sampler;  // Absent: the size is not known.
  int64_t examples = 0;                  // Total in a pass of all replicas. -1: not known.
  uint64_t seed = 0;
  data::AutoShard auto_shard = data::AutoShard::kData;
  int64_t steps_per_epoch = 0;  // 0: not known.
};
// Called by all replicas of the generation, after they have agreed on the batch size. `whole` is
// the process's training split. Opens the files of a replica's share.
absl::StatusOr<TrainData> MakeTrainData(const Job& job, const Replica& replica,
                                        data::DatasetPtr whole, int64_t global_batch_size,
                                        Communicator* communicator);

// Returns the job's options for loading examples.
data::PipelineOptions PipelineOptionsOf(const Job& job);

struct FeedOptions {
  std::string name;  // The user's name of the data.
  int64_t batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;           // 0: a whole pass.
  std::optional<data::Sampler> sampler;  // Absent: made from the options above.
  data::PipelineOptions pipeline;
  data::Position start, start_data;
  bool distributed = true;
};

// A batch, and the report of the examples that all replicas dropped from it.
struct FedBatch : data::LoadedBatch {
  DamagedExamples::Report left_out;
  double wait_seconds = 0;  // Time that this replica waited for its part.
};

// Used by the replica's thread.
class Feed {
 public:
  // `communicator` connects all replicas and must outlive this object.
  Feed(data::DatasetPtr dataset, const FeedOptions& options, const FeedPlace& place,
       Communicator* communicator, at::Device device);
  // Returns the next batch, with its tensors on the device. Without a known size, all replicas
  // first agree on the batch; an error names the replicas that see different data. If damaged
  // examples are dropped, they also agree on the remaining number.
  absl::StatusOr<FedBatch> Next();

 private:
  absl::Status AgreeOnBatch(const data::LoadedBatch& batch) const;

  const std::string name_;
  const bool sized_;
  Communicator* const communicator_;
  const at::Device device_;
  int local_index_ = 0;  // This replica's index within the pipeline.
  std::optional<DamagedExamples> damaged_;
  std::shared_ptr<const CopyAhead> copies_;  // Null: this device needs none.
  std::shared_ptr<data::Pipeline> pipeline_;
};

// Feeds one of the program's own datasets.
class NamedFeed {
 public:
  // `place` is the saved position in the dataset.
  NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
            int64_t global_batch_size, const checkpoint::DataPlace& place, const FeedPlace& where,
            Communicator* communicator, at::Device device);
  // Returns false once at the end of each pass, unless the dataset repeats.
  absl::StatusOr<bool> Next(FedBatch* loaded);
  // The position of the next batch.
  const checkpoint::DataPlace& place() const { return place_; }

 private:
  const bool repeats_;
  checkpoint::DataPlace place_;
  Feed feed_;
};

// Returns the global batches of training data of known size. The job's drop_remainder overrides the
// program's.
data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size);
bool DropsRemainder(const Job& job, const Replica& replica);
// Returns the steps of an epoch. 0: not known from the data.
int64_t StepsPerEpoch(const Job& job, const Replica& replica, int64_t examples,
                      int64_t global_batch_size);
// Returns the steps of the job. Without epochs and max_steps, that is one epoch. 0: not known.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);
// Returns the context that schedules are made with. Returns a ConfigurationError if an epoch has no
// step. `num_replicas` is the number at the run's first start.
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const Replica& replica, int64_t examples,
                                           int64_t global_batch_size, int64_t num_replicas);
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const TrainData& data,
                                           int64_t global_batch_size, int64_t num_replicas);

}  // namespace muster
