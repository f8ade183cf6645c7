// The input of a replica's training loop: batches of the training data and of the program's named
// datasets. A replica is one device's copy of the model, with its own thread. A generation is a
// period of training with fixed members.
//
// A named dataset is a dataset that the program declares besides its train, validation and test
// splits. The size of a dataset may be unknown. Such a dataset is a stream, which the replicas read
// in order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/state/extras.h"
#include "common/collective/communicator.h"
#include "common/data/pipeline.h"
#include "common/job/job.h"
#include "common/train/input/damaged_examples.h"
#include "common/train/replica/copy_ahead.h"
#include "common/train/replica/replica.h"

namespace muster {

class TaskMeter;

// The input pipelines of a process in one generation. The replicas of the process share them, so
// that one set of threads loads the batches of all these replicas. Thread-safe.
class SharedPipelines {
 public:
  using Make = std::function<std::unique_ptr<data::Pipeline>()>;
  // Returns the pipeline `name`. The first call for a name makes the pipeline with `make`.
  std::shared_ptr<data::Pipeline> Get(const std::string& name, const Make& make);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<data::Pipeline>> pipelines_ ABSL_GUARDED_BY(mutex_);
};

// A replica's place in its process and on its host, and the objects that its feeds share with other
// replicas. A Feed (below) delivers batches to one replica.
struct FeedPlace {
  SharedPipelines* shared = nullptr;  // If null, each feed has a pipeline of its own.
  // The replica's index in its process, and the number of replicas in the process.
  int local_index = 0, local_replicas = 1;
  int replicas_on_host = 1;         // Replicas of all processes on this host.
  DamageLog* damage_log = nullptr;  // If null, each feed has a log of its own.
  // Records how many loaded batches wait in each feed. May be null.
  TaskMeter* meter = nullptr;
};
// Returns how many of the host's `cores` a pipeline may use. `of_all_local` is true if the pipeline
// serves all replicas of its process. Together, the pipelines of all replicas on a host use about
// all `cores`. The result is at least 1.
int LoaderCores(int cores, const FeedPlace& place, bool of_all_local);

// The training data of a replica.
struct TrainData {
  // The whole training split, or only this replica's share of the files.
  data::DatasetPtr dataset;
  // Chooses the examples of each batch. Absent if the size of the data is unknown.
  std::optional<data::Sampler> sampler;
  int64_t examples = 0;  // Examples of all replicas in one pass over the data. -1 if unknown.
  uint64_t seed = 0;     // The seed of shuffles and random transforms.
  data::AutoShard auto_shard = data::AutoShard::kData;
  int64_t steps_per_epoch = 0;  // 0 if unknown.
};
// Makes the training data of a replica. `whole` is the complete training split, which all replicas
// of the process share. With data.auto_shard "file", each replica reads only its share of the
// files. The call then opens the files of that share. Called by all replicas of the generation,
// after they have agreed on `global_batch_size`.
absl::StatusOr<TrainData> MakeTrainData(const Job& job, const Replica& replica,
                                        data::DatasetPtr whole, int64_t global_batch_size,
                                        collective::Communicator* communicator);

// Returns the job's options for input pipelines.
data::PipelineOptions PipelineOptionsOf(const Job& job);

struct FeedOptions {
  std::string name;  // The user's name of the dataset.
  int64_t batch_size = 1;
  // True if the short last batch of a pass over the data is left out.
  bool drop_remainder = false;
  // The number of batches in an epoch. 0 if an epoch is one whole pass over the data.
  int64_t steps_per_epoch = 0;
  // Chooses the examples of each batch. If absent, batch_size, drop_remainder and steps_per_epoch
  // define the batches.
  std::optional<data::Sampler> sampler;
  data::PipelineOptions pipeline;
  // The position of the first batch. `start` is the position in epochs, and `start_data` the
  // position in passes over the data. `start_data` is used only for data of unknown size, where a
  // pass over the data may be longer or shorter than an epoch.
  data::Position start, start_data;
  // True if each replica gets its slice of each batch. If false, each replica gets whole batches.
  bool distributed = true;
};

// A batch for one replica. `left_out` reports the damaged examples (damaged_examples.h) that all
// replicas together left out of the batch.
struct FedBatch : data::LoadedBatch {
  DamagedExamples::Report left_out;
  double wait_seconds = 0;  // How long this replica waited for its slice.
};

// Delivers the batches of one dataset to one replica. Used by the replica's thread.
class Feed {
 public:
  // `communicator` connects all replicas of the generation and must outlive this object.
  // `place.meter` may be destroyed before this object.
  Feed(data::DatasetPtr dataset, const FeedOptions& options, const FeedPlace& place,
       collective::Communicator* communicator, at::Device device);
  // Returns the next batch, with its tensors on the replica's device. Blocks until the batch is
  // loaded. The replicas communicate in two cases. First, if the size of the data is unknown, the
  // replicas compare the sizes of their batches. Different sizes are an error, which names the
  // replicas that see different data. Second, if the job leaves out damaged examples, the replicas
  // add up their numbers of damaged examples in the batch.
  absl::StatusOr<FedBatch> Next();

 private:
  absl::Status AgreeOnBatch(const data::LoadedBatch& batch) const;

  const std::string name_;
  const bool sized_;
  collective::Communicator* const communicator_;
  const at::Device device_;
  int local_index_ = 0;  // This replica's index within the pipeline.
  // Absent if the job does not leave out damaged examples.
  std::optional<DamagedExamples> damaged_;
  // Copies batches to a GPU. Null for a replica on the CPU.
  std::shared_ptr<const CopyAhead> copies_;
  std::shared_ptr<data::Pipeline> pipeline_;
};

// Delivers the batches of one named dataset to one replica.
class NamedFeed {
 public:
  // `place` is the position at which the first batch begins.
  NamedFeed(data::DatasetPtr dataset, const NamedDataset& declared, const Job& job,
            int64_t global_batch_size, const checkpoint::DataPlace& place, const FeedPlace& where,
            collective::Communicator* communicator, at::Device device);
  // Sets `loaded` to the next batch and returns true. After the last batch of a pass, returns false
  // once, and the next call begins another pass. Never returns false if the dataset has the option
  // `repeat`.
  absl::StatusOr<bool> Next(FedBatch* loaded);
  // Returns the position at which the next batch begins.
  const checkpoint::DataPlace& place() const { return place_; }

 private:
  const bool repeats_;
  checkpoint::DataPlace place_;
  Feed feed_;
};

// Returns the sampler for training data with `examples` examples. A sampler chooses the examples of
// each global batch.
data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size);
// Returns true if the short last batch of an epoch is left out. The job's drop_remainder overrides
// the program's drop_remainder.
bool DropsRemainder(const Job& job, const Replica& replica);
// Returns the number of steps of the job, or 0 if unknown. A job that sets neither `epochs` nor
// `max_steps` has one epoch.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);
// Returns the numbers that learning-rate schedules depend on. Returns a ConfigurationError if an
// epoch has no step. `num_replicas` is the number of replicas at the first start of the run.
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const Replica& replica, int64_t examples,
                                           int64_t global_batch_size, int64_t num_replicas);
absl::StatusOr<ScheduleContext> ScheduleOf(const Job& job, const TrainData& data,
                                           int64_t global_batch_size, int64_t num_replicas);

}  // namespace muster
