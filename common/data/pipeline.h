// The input pipeline of a training loop. A Sampler computes which examples of a global batch belong
// to a replica. A Pipeline has threads that load the next batches ahead, also across the end of an
// epoch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/data/queue_depth.h"
#include "muster/data.h"

namespace muster::data {

// A position in the data, independent of the world size: the next example is number `offset` of
// epoch `epoch`.
struct Position {
  int64_t epoch = 0;
  int64_t offset = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Returns the replica's contiguous part of the n examples [begin, end). The first (n mod
// num_replicas) replicas have one more example.
Slice ReplicaSlice(int64_t begin, int64_t end, int replica, int num_replicas);

// Computes the global batches of an epoch: [0, B), [B, 2B), ... of a dataset with `size` examples.
// The last batch is short, or dropped.
class Sampler {
 public:
  // If `steps_per_epoch` is 0, an epoch is a whole pass over the data. Otherwise the epoch ends
  // after `steps_per_epoch` batches, and at the latest after a whole pass.
  Sampler(int64_t size, int64_t global_batch_size, bool drop_remainder,
          int64_t steps_per_epoch = 0);
  // Makes a sampler for replicas with separate data: replica r has shares[r] examples of its own.
  // Each global batch takes some of them. A pass ends when all replicas have read all their
  // examples. With drop_remainder, a pass ends when the first replica has too few examples for its
  // part of a batch. A replica that has no more examples gets empty slices. Position::offset is
  // then the number of batches times the global batch size, not a number of examples.
  static Sampler FromShares(std::vector<int64_t> shares, int64_t global_batch_size,
                            bool drop_remainder, int64_t steps_per_epoch = 0);
  int64_t batches_per_epoch() const;
  // Returns the offset at the end of an epoch. Without shares, this is the number of examples of an
  // epoch.
  int64_t examples_per_epoch() const;
  // Returns the replica's part of the global batch at `position`. The numbers are those of the
  // dataset or, with shares, of the replica's share.
  Slice Local(const Position& position, int replica, int num_replicas) const;
  const std::vector<int64_t>& shares() const { return shares_; }  // Empty if there are no shares.
  // Returns the number of examples of all replicas in the batch at `position`.
  int64_t Examples(const Position& position) const;
  // Returns the offset at the end of the global batch that starts at `position`, which is above
  // position.offset. REQUIRES: position.offset < examples_per_epoch().
  int64_t BatchEnd(const Position& position) const;
  // Returns the position after the batch at `position`. At the end of an epoch, this is (epoch + 1,
  // 0).
  Position Next(const Position& position) const;

 private:
  int64_t size_, batch_, examples_, batches_;
  std::vector<int64_t> shares_;
};

// Loads the examples of `slice`, in order. Errors name the examples.
absl::StatusOr<Batch> LoadExamples(const Dataset& dataset, Slice slice, const Context& context);

// A batch that omits the damaged examples (DataErrors).
struct PresentExamples {
  Batch batch;                       // The first dimension may be 0.
  int64_t count = 0;                 // The number of examples in `batch`.
  std::vector<std::string> damaged;  // One error for each omitted example.
};
// Loads the readable examples of `slice`. Returns a DataError if no example of the whole dataset is
// readable.
absl::StatusOr<PresentExamples> LoadPresentExamples(const Dataset& dataset, Slice slice,
                                                    const Context& context);

struct LoadedBatch {
  Batch batch;          // This replica's slice. The first dimension may be 0.
  Position position;    // The position of the global batch.
  Slice global, local;  // The ranges of examples, as numbers within the epoch.
  // The number of examples in `batch`. It is smaller than `local` if damaged examples are omitted.
  int64_t local_examples = 0;
  int64_t global_examples = 0;  // The number of examples of all replicas, including damaged ones.
  std::vector<std::string> damaged;  // One error for each omitted example.
  std::shared_ptr<void> prepared;    // Set by PipelineOptions::prepare.
  // The position of the next global batch. next_data is the same position as (pass over the data,
  // number of the example in that pass). The two can differ only for data of unknown size.
  Position next, next_data;
};

struct PipelineOptions {
  static constexpr int kAuto = -1;  // The LoaderTuner chooses the value.
  int threads = kAuto;
  // The number of batches loaded ahead, also across the end of an epoch. If 0, the caller of Next
  // loads each batch.
  int prefetch = kAuto;
  uint64_t seed = 0;
  bool repeat = true;         // If false, Next returns kOutOfRange after one epoch.
  bool skip_damaged = false;  // If true, batches omit examples with DataErrors.
  int cores = 0;  // The limit on threads for kAuto. 0 means the number of cores of this process.
  // Called with each loaded batch, on the thread that loaded the batch. May be null.
  std::function<absl::Status(LoadedBatch*)> prepare = nullptr;
  // Counts the batches that are ready. Several pipelines may share it. May be null.
  std::shared_ptr<QueueDepth> depth = nullptr;
};

// The global batches of data of unknown size. The last batch of a pass over the data is short or
// dropped. Then the next pass starts at the beginning. An epoch ends with its pass, or after
// `steps_per_epoch` batches. In the second case, the next epoch continues the same pass.
struct StreamPlan {
  int64_t global_batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;  // 0 means that an epoch is a whole pass.
  Position start;               // The position of the first batch.
  // The same position as (pass over the data, number of the example in that pass).
  Position start_data;
};

// Loads the batches of this process's replicas. For one replica, only one thread at a time may call
// Next. Different replicas may call Next concurrently. If loading a batch fails, Next returns the
// error for this batch and at every later call.
class Pipeline {
 public:
  // The current numbers of threads and of batches ahead.
  struct Setting {
    int threads = 0, prefetch = 0;
  };
  // Makes a pipeline over data of known size. `first_replica` is the number of local replica 0 in
  // the generation. `num_replicas` is the number of replicas in the generation.
  static std::unique_ptr<Pipeline> Make(DatasetPtr dataset, Sampler sampler, Position start,
                                        int first_replica, int local_replicas, int num_replicas,
                                        PipelineOptions options);
  // Makes a pipeline over data of unknown size for one replica. To know whether a batch is the last
  // of its pass, the pipeline reads one example more (a whole batch more if short batches are
  // dropped).
  static std::unique_ptr<Pipeline> MakeStream(DatasetPtr dataset, const StreamPlan& plan,
                                              int replica, int num_replicas,
                                              const PipelineOptions& options);
  virtual ~Pipeline() = default;  // Stops the threads.
  virtual absl::StatusOr<LoadedBatch> Next(int local_replica) = 0;
  // Thread-safe. Returns {0, 0} if the caller of Next loads the batches.
  virtual Setting setting() const = 0;
  // Makes every blocked and every later call of Next return `why`. Thread-safe.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster::data
