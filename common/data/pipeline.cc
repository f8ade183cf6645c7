#include "common/data/pipeline.h"

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <thread>

#include "common/base/logging.h"
#include "common/data/batches.h"
#include "common/data/single_thread.h"

namespace muster::data {
namespace {

// What both pipelines share: which batch comes next for a replica, and how it is loaded. Immutable.
class Loader {
 public:
  Loader(DatasetPtr dataset, Sampler sampler, Position start, int first_replica, int num_replicas,
         PipelineOptions options)
      : dataset_(std::move(dataset)),
        sampler_(sampler),
        start_(start),
        first_replica_(first_replica),
        num_replicas_(num_replicas),
        options_(options) {
    if (start_.offset >= sampler_.examples_per_epoch()) start_ = {start_.epoch + 1, 0};
  }

  Position start() const { return start_; }

  // The batch at *position without its data, and *position moved on; kOutOfRange after the end.
  absl::StatusOr<LoadedBatch> Plan(int local_replica, Position* position) const {
    if (!options_.repeat && (position->epoch > start_.epoch || Empty())) {
      return absl::OutOfRangeError("The epoch is over.");
    }
    if (Empty()) {
      return ConfigurationError(
          "The training dataset has no whole global batch, and incomplete ones are dropped: it "
          "needs "
          "more examples, or a smaller batch.");
    }
    LoadedBatch plan;
    plan.position = *position;
    plan.global = {position->offset, sampler_.BatchEnd(*position)};
    plan.local = ReplicaSlice(plan.global.begin, plan.global.end, first_replica_ + local_replica,
                              num_replicas_);
    *position = sampler_.Next(*position);
    plan.next = plan.next_data = *position;
    return plan;
  }

  absl::Status Load(LoadedBatch* plan) const {
    MUSTER_ASSIGN_OR_RETURN(
        plan->batch,
        LoadExamples(*dataset_, plan->local, Context{options_.seed, plan->position.epoch}));
    return absl::OkStatus();
  }

 private:
  bool Empty() const { return sampler_.batches_per_epoch() == 0; }

  const DatasetPtr dataset_;
  const Sampler sampler_;
  Position start_;
  const int first_replica_, num_replicas_;
  const PipelineOptions options_;
};

absl::Status NoSuchReplica(int local_replica, size_t replicas) {
  return ProgramError(fmt::format("The input pipeline was asked for local replica {} of {}.",
                                  local_replica, replicas));
}

// prefetch 0: each replica loads its own batches, in Next.
class DirectPipeline final : public Pipeline {
 public:
  DirectPipeline(Loader loader, int local_replicas) : loader_(std::move(loader)) {
    places_.resize(local_replicas, loader_.start());
    errors_.resize(local_replicas);
  }

  absl::StatusOr<LoadedBatch> Next(int local_replica) override {
    if (local_replica < 0 || local_replica >= static_cast<int>(places_.size())) {
      return NoSuchReplica(local_replica, places_.size());
    }
    {
      absl::MutexLock lock(&mutex_);
      MUSTER_RETURN_IF_ERROR(errors_[local_replica]);
    }
    absl::StatusOr<LoadedBatch> batch = loader_.Plan(local_replica, &places_[local_replica]);
    absl::Status status = batch.ok() ? loader_.Load(&*batch) : batch.status();
    absl::MutexLock lock(&mutex_);
    errors_[local_replica].Update(status);
    MUSTER_RETURN_IF_ERROR(errors_[local_replica]);
    return batch;
  }

  void Stop(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    for (absl::Status& error : errors_) error.Update(why);
  }

 private:
  const Loader loader_;
  std::vector<Position> places_;  // each one its replica's thread's
  absl::Mutex mutex_;
  std::vector<absl::Status> errors_ ABSL_GUARDED_BY(mutex_);
};

// Worker threads load the batches of all local replicas, the earliest first; each replica's wait in
// a queue of their order, whichever is loaded first.
class ThreadedPipeline final : public Pipeline {
 public:
  ThreadedPipeline(Loader loader, int local_replicas, PipelineOptions options)
      : loader_(std::move(loader)), prefetch_(options.prefetch), replicas_(local_replicas) {
    for (Replica& replica : replicas_) replica.place = loader_.start();
    // More threads than batches under way would never have work.
    const int64_t most = int64_t{prefetch_} * local_replicas;
    for (int i = 0; i < std::min<int64_t>(options.threads, most); ++i) {
      threads_.emplace_back([this, i] {
        pthread_setname_np(pthread_self(), fmt::format("data-{}", i).c_str());
        UseOneIntraOpThread();
        Work();
      });
    }
  }

  ~ThreadedPipeline() override {
    Stop(absl::CancelledError("The input pipeline was closed."));
    for (std::thread& thread : threads_) thread.join();
  }

  absl::StatusOr<LoadedBatch> Next(int local_replica) override {
    if (local_replica < 0 || local_replica >= static_cast<int>(replicas_.size())) {
      return NoSuchReplica(local_replica, replicas_.size());
    }
    Replica& replica = replicas_[local_replica];
    absl::MutexLock lock(&mutex_);
    while (replica.error.ok() && (replica.queue.empty() || !replica.queue.front().done)) {
      if (replica.ready.WaitWithTimeout(&mutex_, absl::Seconds(10))) WarnLocked(replica);
    }
    MUSTER_RETURN_IF_ERROR(replica.error);
    Entry entry = std::move(replica.queue.front());
    replica.queue.pop_front();
    replica.error = entry.status;
    work_.Signal();
    MUSTER_RETURN_IF_ERROR(entry.status);
    return std::move(entry.batch);
  }

  void Stop(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    work_.SignalAll();
    for (Replica& replica : replicas_) {
      replica.error.Update(why);
      replica.ready.SignalAll();
    }
  }

 private:
  struct Entry {
    LoadedBatch batch;
    absl::Status status;
    bool done = false;
  };
  struct Replica {
    Position place;           // of the next batch to begin with
    int64_t begun = 0;        // batches
    bool at_end = false;      // nothing more to begin with: the end, or an error
    std::deque<Entry> queue;  // begun, not yet taken; entries stay where they are in memory
    absl::Status error;       // taken, and sticks
    absl::CondVar ready;
  };

  void Work() {
    absl::MutexLock lock(&mutex_);
    while (!stopping_) {
      Replica* replica = ChooseLocked();
      if (replica == nullptr) {
        work_.Wait(&mutex_);
      } else {
        LoadOneLocked(*replica);
      }
    }
  }

  // The replica that is furthest behind among those that want a batch; null if none does.
  Replica* ChooseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Replica* chosen = nullptr;
    for (Replica& replica : replicas_) {
      if (replica.at_end || static_cast<int>(replica.queue.size()) >= prefetch_) continue;
      if (chosen == nullptr || replica.begun < chosen->begun) chosen = &replica;
    }
    return chosen;
  }

  // Gives the mutex up while it loads.
  void LoadOneLocked(Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int index = static_cast<int>(&replica - replicas_.data());
    Entry& entry = replica.queue.emplace_back();
    ++replica.begun;
    absl::StatusOr<LoadedBatch> plan = loader_.Plan(index, &replica.place);
    entry.status = plan.status();
    if (plan.ok()) {
      entry.batch = *std::move(plan);
      mutex_.Unlock();
      absl::Status status = loader_.Load(&entry.batch);
      mutex_.Lock();
      entry.status = std::move(status);
    }
    entry.done = true;
    if (!entry.status.ok()) replica.at_end = true;
    replica.ready.Signal();
  }

  void WarnLocked(const Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (replica.queue.empty()) return;
    const LoadedBatch& batch = replica.queue.front().batch;
    LogWarning("still loading examples {} to {} of epoch {}", batch.local.begin, batch.local.end,
               batch.position.epoch);
  }

  const Loader loader_;
  const int prefetch_;
  absl::Mutex mutex_;
  absl::CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Replica> replicas_;  // the elements are guarded by mutex_, the vector is const
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<Batch> LoadExamples(const Dataset& dataset, Slice slice, const Context& context) {
  std::vector<int64_t> indices(slice.size());
  std::iota(indices.begin(), indices.end(), slice.begin);
  c10::AutoGradMode no_gradients(false);
  absl::StatusOr<Batch> batch;
  try {
    batch = dataset.GetBatch(indices, context);
  } catch (...) {
    return CaughtException(
        fmt::format("The dataset, at epoch {}, example {},", context.epoch, slice.begin));
  }
  MUSTER_RETURN_IF_ERROR(batch.status());
  MUSTER_RETURN_IF_ERROR(CheckRows(*batch, slice.size(), "The dataset"));
  return batch;
}

std::unique_ptr<Pipeline> Pipeline::Make(DatasetPtr dataset, Sampler sampler, Position start,
                                         int first_replica, int local_replicas, int num_replicas,
                                         PipelineOptions options) {
  Loader loader(NotNull(std::move(dataset), "Pipeline"), sampler, start, first_replica,
                num_replicas, options);
  if (options.prefetch <= 0 || options.threads <= 0) {
    return std::make_unique<DirectPipeline>(std::move(loader), local_replicas);
  }
  return std::make_unique<ThreadedPipeline>(std::move(loader), local_replicas, options);
}

}  // namespace muster::data
