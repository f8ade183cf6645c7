// Where a training loop's batches come from: the sampler (which examples make up replica r's part
// of global batch b) and the input pipeline (worker threads that have the next batches ready,
// across the end of an epoch).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/data.h"

namespace muster::data {

// The position in the data: the next example is number `offset` of epoch `epoch`, whatever the
// world size.
struct Position {
  int64_t epoch = 0;
  int64_t offset = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Replica r's contiguous part of [begin, end) among R replicas: the first (n mod R) get one more.
Slice ReplicaSlice(int64_t begin, int64_t end, int replica, int num_replicas);

// The global batches of an epoch: [0, B), [B, 2B), ... of a dataset with `size` examples; the last
// one is short, or dropped.
class Sampler {
 public:
  // `steps_per_epoch` 0: a whole pass; else an epoch ends after that many batches (at most a whole
  // pass).
  Sampler(int64_t size, int64_t global_batch_size, bool drop_remainder,
          int64_t steps_per_epoch = 0);
  // Replica r goes through examples of its own, shares[r] of them, by its part of each global
  // batch. A pass lasts until the slowest is through (dropping: until the first has no whole part
  // left); those that are through earlier get empty parts. A position's offset then counts by
  // global batches: it is not a number of examples done.
  static Sampler OfShares(std::vector<int64_t> shares, int64_t global_batch_size,
                          bool drop_remainder, int64_t steps_per_epoch = 0);
  int64_t batches_per_epoch() const;
  // Where an epoch's offsets end; without shares its number of examples.
  int64_t examples_per_epoch() const;
  // Replica r's part of the global batch at `position`: numbers within the dataset, or its share.
  Slice Local(const Position& position, int replica, int num_replicas) const;
  const std::vector<int64_t>& shares() const { return shares_; }  // empty: there are none
  // How many examples all replicas have there.
  int64_t Examples(const Position& position) const;
  // The global batch that starts at `position`: [offset, end), never empty. REQUIRES: offset <
  // examples_per_epoch().
  int64_t BatchEnd(const Position& position) const;
  // The position after that batch; (epoch + 1, 0) at the end of an epoch.
  Position Next(const Position& position) const;

 private:
  int64_t size_, batch_, examples_, batches_;
  std::vector<int64_t> shares_;
};

// Examples [begin, end) of an epoch, in its order; errors name them.
absl::StatusOr<Batch> LoadExamples(const Dataset& dataset, Slice slice, const Context& context);

// The same without those that are damaged (DataErrors).
struct PresentExamples {
  Batch batch;                       // first dimension may be 0
  int64_t count = 0;                 // of them
  std::vector<std::string> damaged;  // what is wrong with each that was left out
};
// A DataError where no example of the whole dataset is readable.
absl::StatusOr<PresentExamples> LoadPresentExamples(const Dataset& dataset, Slice slice,
                                                    const Context& context);

struct LoadedBatch {
  Batch batch;                  // this replica's slice; first dimension may be 0
  Position position;            // of the global batch
  Slice global, local;          // example numbers within the epoch
  int64_t local_examples = 0;   // in `batch`: fewer than in `local` where damaged ones are left out
  int64_t global_examples = 0;  // of all replicas, the damaged ones too
  std::vector<std::string> damaged;  // what is wrong with those left out
  std::shared_ptr<void> prepared;    // PipelineOptions::prepare's
  // Of the global batch after it; and the same in the data's own count, which is another one where
  // its size is not known: the pass over it, and the example's number in that.
  Position next, next_data;
};

struct PipelineOptions {
  static constexpr int kAuto = -1;  // as LoaderTuner decides
  int threads = kAuto;
  // Batches ready ahead, across the epoch boundary; 0: loaded in Next's caller.
  int prefetch = kAuto;
  uint64_t seed = 0;
  bool repeat = true;         // false: one epoch, then Next returns kOutOfRange
  bool skip_damaged = false;  // examples that are DataErrors are left out of their batches
  int cores = 0;              // bound what kAuto makes of threads; 0: those of this process
  // Called with each batch once it is loaded, by the thread that loaded it. May be null.
  std::function<absl::Status(LoadedBatch*)> prepare = nullptr;
};

// The global batches of data whose size is not known. A pass ends with the data, its last batch
// short, or dropped; the next one begins anew. An epoch ends with its pass, or after so many
// batches: the next epoch then goes on in the same pass.
struct StreamPlan {
  int64_t global_batch_size = 1;
  bool drop_remainder = false;
  int64_t steps_per_epoch = 0;  // 0: a whole pass
  Position start;               // of the next batch
  Position start_data;          // the same in the data's own count
};

// The batches of the local replicas. Each replica's Next is for one thread; different replicas may
// be asked at the same time. An error of the dataset is returned by Next at the batch where it
// occurred, and sticks.
class Pipeline {
 public:
  // What kAuto has come to so far.
  struct Setting {
    int threads = 0, prefetch = 0;
  };
  // `first_replica`: the number of local replica 0 in the generation; `num_replicas` of the
  // generation.
  static std::unique_ptr<Pipeline> Make(DatasetPtr dataset, Sampler sampler, Position start,
                                        int first_replica, int local_replicas, int num_replicas,
                                        PipelineOptions options);
  // The same for data of unknown size, for one replica. Whether a batch is the last one of its pass
  // is known with the batch: one example more is looked at (a whole batch where short ones are
  // dropped).
  static std::unique_ptr<Pipeline> MakeStream(DatasetPtr dataset, const StreamPlan& plan,
                                              int replica, int num_replicas,
                                              const PipelineOptions& options);
  virtual ~Pipeline() = default;  // Stops its threads.
  virtual absl::StatusOr<LoadedBatch> Next(int local_replica) = 0;
  // From any thread. {0, 0}: batches are loaded in Next's caller.
  virtual Setting setting() const = 0;
  // From any thread: `why` wakes whoever waits in Next, and is what every later Next returns.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster::data
