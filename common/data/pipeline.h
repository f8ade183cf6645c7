// The source of a training loop's batches. The sampler decides which examples are replica r's part
// of global batch b. The input pipeline has worker threads that load the next batches ahead, also
// across the end of an epoch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/data.h"

namespace muster::data {

// The position in the data: the next example is number `offset` of epoch `epoch`, for every world
// size.
struct Position {
  int64_t epoch = 0;
  int64_t offset = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Returns replica r's contiguous part of [begin, end) among R replicas. The first (n mod R)
// replicas get one more example.
Slice ReplicaSlice(int64_t begin, int64_t end, int replica, int num_replicas);

// The global batches of an epoch: [0, B), [B, 2B), ... of a dataset with `size` examples. The last
// one is short, or dropped.
class Sampler {
 public:
  // With `steps_per_epoch` 0, an epoch is a whole pass. Otherwise it ends after that many batches,
  // at most a whole pass.
  Sampler(int64_t size, int64_t global_batch_size, bool drop_remainder,
          int64_t steps_per_epoch = 0);
  // Replica r reads its own shares[r] examples, and each global batch takes its part of them. A
  // pass lasts until the slowest replica has finished. With drop_remainder it ends when the first
  // replica has no whole part left. Replicas that finish earlier get empty parts. The offset of a
  // position then counts whole global batches, and is not a number of examples.
  static Sampler OfShares(std::vector<int64_t> shares, int64_t global_batch_size,
                          bool drop_remainder, int64_t steps_per_epoch = 0);
  int64_t batches_per_epoch() const;
  // The offset at which an epoch ends. Without shares, this is its number of examples.
  int64_t examples_per_epoch() const;
  // Returns replica r's part of the global batch at `position`, as numbers within the dataset or
  // within its share.
  Slice Local(const Position& position, int replica, int num_replicas) const;
  const std::vector<int64_t>& shares() const { return shares_; }  // Empty without shares.
  // Returns the examples of all replicas in the batch at `position`.
  int64_t Examples(const Position& position) const;
  // Returns the end of the global batch that starts at `position`: [offset, end), never empty.
  // REQUIRES: offset < examples_per_epoch().
  int64_t BatchEnd(const Position& position) const;
  // Returns the position after that batch, (epoch + 1, 0) at the end of an epoch.
  Position Next(const Position& position) const;

 private:
  int64_t size_, batch_, examples_, batches_;
  std::vector<int64_t> shares_;
};

// Loads examples [begin, end) of an epoch, in order. Errors name them.
absl::StatusOr<Batch> LoadExamples(const Dataset& dataset, Slice slice, const Context& context);

// A batch without the damaged examples (DataErrors).
struct PresentExamples {
  Batch batch;                       // The first dimension may be 0.
  int64_t count = 0;                 // Number of examples in `batch`.
  std::vector<std::string> damaged;  // One error for each example left out.
};
// Returns a DataError where no example of the whole dataset is readable.
absl::StatusOr<PresentExamples> LoadPresentExamples(const Dataset& dataset, Slice slice,
                                                    const Context& context);

struct LoadedBatch {
  Batch batch;          // This replica's slice. The first dimension may be 0.
  Position position;    // Of the global batch.
  Slice global, local;  // Numbers of the examples within the epoch.
  // Examples in `batch`: fewer than in `local` where damaged ones are left out.
  int64_t local_examples = 0;
  int64_t global_examples = 0;       // Of all replicas, including damaged ones.
  std::vector<std::string> damaged;  // One error for each example left out.
  std::shared_ptr<void> prepared;    // Set by PipelineOptions::prepare.
  // The position of the next global batch. next_data is the same position in the data's own count.
  // For data of unknown size that is the pass over the data, and the example's number in that pass.
  Position next, next_data;
};

struct PipelineOptions {
  static constexpr int kAuto = -1;  // The LoaderTuner decides.
  int threads = kAuto;
  // Batches loaded ahead, across the epoch boundary. 0: the caller of Next loads them.
  int prefetch = kAuto;
  uint64_t seed = 0;
  bool repeat = true;         // False: Next returns kOutOfRange after one epoch.
  bool skip_damaged = false;  // Leaves examples with DataErrors out of their batches.
  int cores = 0;              // Limit on threads for kAuto. 0: the cores of this process.
  // Called with each loaded batch, by the thread that loaded it. May be null.
  std::function<absl::Status(LoadedBatch*)> prepare = nullptr;
};

// The global batches of data of unknown size. A pass ends with the data, and its last batch is
// short or dropped. The next pass starts at the beginning. An epoch ends with its pass, or after
// `steps_per_epoch` batches. In the latter case the next epoch continues in the same pass.
struct StreamPlan {
  int64_t global_batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;  // 0: a whole pass.
  Position start;               // Of the next batch.
  Position start_data;          // The same position in the data's own count.
};

// The batches of the local replicas. Only one thread at a time may call Next for a replica.
// Different replicas may call it concurrently. Next returns an error of the dataset at the batch
// where it occurred, and at every later call.
class Pipeline {
 public:
  // The current setting of kAuto.
  struct Setting {
    int threads = 0, prefetch = 0;
  };
  // `first_replica` is the number of local replica 0 in the generation. `num_replicas` counts those
  // of the generation.
  static std::unique_ptr<Pipeline> Make(DatasetPtr dataset, Sampler sampler, Position start,
                                        int first_replica, int local_replicas, int num_replicas,
                                        PipelineOptions options);
  // Makes a pipeline over data of unknown size for one replica. To know whether a batch is the last
  // one of its pass, it reads one more example (a whole batch where short ones are dropped).
  static std::unique_ptr<Pipeline> MakeStream(DatasetPtr dataset, const StreamPlan& plan,
                                              int replica, int num_replicas,
                                              const PipelineOptions& options);
  virtual ~Pipeline() = default;  // Stops its threads.
  virtual absl::StatusOr<LoadedBatch> Next(int local_replica) = 0;
  // Thread-safe. Returns {0, 0} where the caller of Next loads the batches.
  virtual Setting setting() const = 0;
  // Thread-safe. Wakes every waiter in Next. Every later Next returns `why`.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster::data
