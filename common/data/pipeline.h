// The input pipeline of a training loop. A global batch is the batch of one step over all replicas.
// A Sampler computes the examples of a global batch that belong to a replica. A Pipeline has
// threads that load batches ahead, including batches of the next epoch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/data/queue_depth.h"
#include "muster/data.h"

namespace muster::data {

// A position in the data, independent of the number of replicas. The next example is number
// `offset` of epoch `epoch`. Both numbers start at 0.
struct Position {
  int64_t epoch = 0;
  int64_t offset = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

// A range of examples: `begin`, `begin` + 1, ..., `end` - 1.
struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Returns the replica's contiguous part of the n examples [begin, end). The first (n mod
// num_replicas) replicas have one more example than the other replicas.
Slice ReplicaSlice(int64_t begin, int64_t end, int replica, int num_replicas);

// Computes the global batches of an epoch. The batches are the examples [0, B), [B, 2B), ... of a
// dataset, where B is the global batch size. An incomplete last batch is kept or dropped.
class Sampler {
 public:
  // If `steps_per_epoch` is 0, an epoch is a whole pass over the data. Otherwise an epoch ends
  // after `steps_per_epoch` batches, or earlier if the pass ends.
  Sampler(int64_t size, int64_t global_batch_size, bool drop_remainder,
          int64_t steps_per_epoch = 0);
  // Makes a sampler for replicas with separate data: replica r has its own shares[r] examples. Each
  // global batch takes some examples of each replica. A pass over the data ends when all replicas
  // have read all their examples. With drop_remainder, a pass ends as soon as one replica has too
  // few examples for its part of a batch. A replica that has no more examples gets empty slices.
  // For such a sampler, Position::offset is not a number of examples. It is the number of batches
  // times the global batch size.
  static Sampler FromShares(std::vector<int64_t> shares, int64_t global_batch_size,
                            bool drop_remainder, int64_t steps_per_epoch);
  int64_t batches_per_epoch() const;
  // Returns the offset at the end of an epoch. Without shares, this offset is the number of
  // examples of an epoch.
  int64_t examples_per_epoch() const;
  // Returns the replica's part of the global batch at `position`, as a range of the dataset. For a
  // sampler with shares, returns a range of the replica's own examples, from 0.
  Slice Local(const Position& position, int replica, int num_replicas) const;
  const std::vector<int64_t>& shares() const { return shares_; }  // Empty if there are no shares.
  // Returns the number of examples of all replicas in the batch at `position`.
  int64_t Examples(const Position& position) const;
  // Returns the offset at the end of the global batch that starts at `position`. The result is
  // above position.offset. REQUIRES: position.offset < examples_per_epoch().
  int64_t BatchEnd(const Position& position) const;
  // Returns the position after the batch at `position`. Returns (epoch + 1, 0) after the last batch
  // of an epoch.
  Position Next(const Position& position) const;

 private:
  int64_t size_, batch_, examples_, batches_;
  std::vector<int64_t> shares_;
};

// Loads the examples of `slice`, in order. Errors name the examples.
absl::StatusOr<Batch> LoadExamples(const Dataset& dataset, Slice slice, const Context& context);

// A batch without its damaged examples. An example is damaged if IsDamage (files/damage.h) returns
// true for the dataset's error.
struct PresentExamples {
  Batch batch;                       // The first dimension may be 0.
  int64_t count = 0;                 // The number of examples in `batch`.
  std::vector<std::string> damaged;  // One error for each damaged example.
};
// Loads the readable examples of `slice`. Returns a DataError if no example of the whole dataset is
// readable.
absl::StatusOr<PresentExamples> LoadPresentExamples(const Dataset& dataset, Slice slice,
                                                    const Context& context);

struct LoadedBatch {
  Batch batch;        // This replica's slice. The first dimension may be 0.
  Position position;  // The position of the first example of the global batch.
  // The examples of the global batch and of this replica's slice, numbered within the epoch.
  Slice global, local;
  // The number of examples in `batch`. Below local.size() if damaged examples are left out.
  int64_t local_examples = 0;
  // The number of examples in the global batch, including damaged examples.
  int64_t global_examples = 0;
  std::vector<std::string> damaged;  // One error for each damaged example.
  std::shared_ptr<void> prepared;    // Set by PipelineOptions::prepare.
  // `next` is the position of the next global batch. `next_data` is the same position, counted in
  // passes over the data: `epoch` is the number of the pass, and `offset` is the index of the
  // example in that pass. `next` and `next_data` can differ only for data of unknown size.
  Position next, next_data;
};

struct PipelineOptions {
  static constexpr int kAuto = -1;  // The LoaderTuner chooses the value.
  int threads = kAuto;
  // The number of batches that the threads load ahead for each replica, including batches of the
  // next epoch. If 0, the thread that calls Next loads each batch.
  int prefetch = kAuto;
  uint64_t seed = 0;
  bool repeat = true;  // If false, Next returns kOutOfRange after one epoch.
  // If true, damaged examples are left out of batches (PresentExamples).
  bool skip_damaged = false;
  // The maximum number of threads for kAuto. 0 means the number of cores of this process.
  int cores = 0;
  // Called with each loaded batch, on the thread that loaded the batch. May be null.
  std::function<absl::Status(LoadedBatch*)> prepare = nullptr;
  // Counts the batches that are ready. Several pipelines may share one QueueDepth. May be null.
  std::shared_ptr<QueueDepth> depth = nullptr;
};

// How data of unknown size is divided into global batches. An incomplete last batch of a pass over
// the data is kept or dropped. The next pass starts at the beginning of the data. The end of a pass
// also ends the epoch. If `steps_per_epoch` is above 0, an epoch also ends after this number of
// batches, and the next epoch continues the same pass.
struct StreamPlan {
  int64_t global_batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;  // The maximum number of batches of an epoch. 0: no limit.
  Position start;               // The position of the first batch.
  // The same position, counted in passes over the data: `epoch` is the number of the pass, and
  // `offset` is the index of the example in that pass.
  Position start_data;
};

// Loads the batches of this process's replicas. For one replica, only one thread at a time may call
// Next. Different replicas may call Next concurrently. If loading a batch fails, Next returns the
// error in this call and in every later call for the replica.
class Pipeline {
 public:
  // The current number of threads, and of batches to load ahead for each replica.
  struct Setting {
    int threads = 0, prefetch = 0;
  };
  // Makes a pipeline over data of known size. The replicas of all processes have numbers from 0.
  // `first_replica` is the number of this process's first replica. `num_replicas` is the number of
  // replicas of all processes.
  static std::unique_ptr<Pipeline> Make(DatasetPtr dataset, Sampler sampler, Position start,
                                        int first_replica, int local_replicas, int num_replicas,
                                        PipelineOptions options);
  // Makes a pipeline over data of unknown size for one replica. The pipeline also reads the example
  // after a batch, to know whether the batch is the last batch of its pass. If incomplete batches
  // are dropped, the pipeline reads the whole next batch for this purpose.
  static std::unique_ptr<Pipeline> MakeStream(DatasetPtr dataset, const StreamPlan& plan,
                                              int replica, int num_replicas,
                                              const PipelineOptions& options);
  virtual ~Pipeline() = default;  // Stops the threads.
  virtual absl::StatusOr<LoadedBatch> Next(int local_replica) = 0;
  // Thread-safe. Returns {0, 0} if the thread that calls Next loads the batches.
  virtual Setting setting() const = 0;
  // Makes every blocked call and every later call of Next return `why`. Thread-safe.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster::data
