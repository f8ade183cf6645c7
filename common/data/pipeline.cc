#include "common/data/pipeline.h"

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/process/cores.h"
#include "common/base/suppressed.h"
#include "common/base/wait.h"
#include "common/data/batches.h"
#include "common/data/job/load_examples.h"
#include "common/data/loader_tuner.h"
#include "common/data/single_thread.h"
#include "common/flight/spans.h"

namespace muster::data {
namespace {

// Chooses and loads the next batch of a replica, for both pipelines of this file. Immutable.
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

  // Returns the batch at *position without loading its data, and advances *position. Returns
  // kOutOfRange after the end.
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
    plan.local = sampler_.Local(*position, first_replica_ + local_replica, num_replicas_);
    plan.local_examples = plan.local.size();
    plan.global_examples = sampler_.Examples(*position);
    *position = sampler_.Next(*position);
    plan.next = plan.next_data = *position;
    return plan;
  }

  absl::Status Load(LoadedBatch* plan) const {
    const Span span("load batch");
    return LoadInto(*dataset_, plan->local, Context{options_.seed, plan->position.epoch}, options_,
                    plan);
  }

 private:
  bool Empty() const { return sampler_.batches_per_epoch() == 0; }

  const DatasetPtr dataset_;
  const Sampler sampler_;
  Position start_;
  const int first_replica_, num_replicas_;
  const PipelineOptions options_;
};

int64_t BytesOf(const Batch& batch) {
  int64_t bytes = 0;
  for (const at::Tensor& component : batch) bytes += static_cast<int64_t>(component.nbytes());
  return bytes;
}

// At most one line a minute, of all pipelines of this process.
void LogSetting(const std::string& why) {
  static LogRateLimiter line(1, std::chrono::minutes(1));
  int64_t left_out = 0;
  if (!line.Take(&left_out)) return;
  LogInfo("the input pipeline loads with {}{}", why, SuppressedText(left_out));
}

// Returns the limit on the size of all batches ahead, a small part of the host's memory.
int64_t BytesAhead() {
  struct sysinfo memory = {};
  if (sysinfo(&memory) != 0) return int64_t{256} << 20;
  return std::min<int64_t>(static_cast<int64_t>(memory.totalram / 32) * memory.mem_unit,
                           int64_t{1} << 30);
}

LoaderLimits LimitsOf(const PipelineOptions& options, int local_replicas) {
  LoaderLimits limits;
  if (options.threads != PipelineOptions::kAuto) limits.threads = options.threads;
  if (options.prefetch != PipelineOptions::kAuto) limits.prefetch = options.prefetch;
  limits.cores = options.cores > 0 ? options.cores : AvailableCores();
  limits.replicas = local_replicas;
  limits.bytes = BytesAhead();
  return limits;
}

absl::Status NoSuchReplica(int local_replica, size_t replicas) {
  return ProgramError(fmt::format("The input pipeline was asked for local replica {} of {}.",
                                  local_replica, replicas));
}

// The pipeline for prefetch 0. Next loads the replica's batch.
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

  Setting setting() const override { return {}; }

  void Stop(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    for (absl::Status& error : errors_) error.Update(why);
  }

 private:
  const Loader loader_;
  std::vector<Position> places_;  // Only the replica's thread uses its element.
  absl::Mutex mutex_;
  std::vector<absl::Status> errors_ ABSL_GUARDED_BY(mutex_);
};

// A pool of threads loads the batches of all local replicas, the earliest first. Each replica has a
// queue in the order of its batches, in whatever order they finish loading. The number of threads
// and the length of queues depend on the waits of the replicas, and do not affect the contents of
// batches.
class ThreadedPipeline final : public Pipeline {
 public:
  ThreadedPipeline(Loader loader, int local_replicas, const PipelineOptions& options)
      : loader_(std::move(loader)),
        tuner_(LimitsOf(options, local_replicas)),
        depth_(options.depth),
        replicas_(local_replicas) {
    absl::MutexLock lock(&mutex_);
    for (Replica& replica : replicas_) replica.place = loader_.start();
    StartThreadsLocked();
  }

  ~ThreadedPipeline() override {
    Stop(absl::CancelledError("The input pipeline was closed."));
    std::vector<std::thread> threads;
    {
      absl::MutexLock lock(&mutex_);
      threads = std::move(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  absl::StatusOr<LoadedBatch> Next(int local_replica) override {
    if (local_replica < 0 || local_replica >= static_cast<int>(replicas_.size())) {
      return NoSuchReplica(local_replica, replicas_.size());
    }
    Replica& replica = replicas_[local_replica];
    absl::MutexLock lock(&mutex_);
    const bool full = IsFullLocked(replica);
    const MonotonicTime asked = Clock::now();
    while (replica.error.ok() && (replica.queue.empty() || !replica.queue.front().done)) {
      if (replica.ready.WaitFor(&mutex_, std::chrono::seconds(10))) WarnLocked(replica);
    }
    MUSTER_RETURN_IF_ERROR(replica.error);
    Entry entry = std::move(replica.queue.front());
    replica.queue.pop_front();
    replica.error = entry.status;
    work_.Signal();
    MUSTER_RETURN_IF_ERROR(entry.status);
    depth_.AddReady(-1);
    if (!tuner_.fixed()) TuneLocked(asked, full);
    return std::move(entry.batch);
  }

  Setting setting() const override {
    absl::MutexLock lock(&mutex_);
    return {tuner_.setting().threads, tuner_.setting().prefetch};
  }

  void Stop(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    work_.SignalAll();
    parked_.SignalAll();
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
    Position place;       // The position of the next batch to load.
    int64_t begun = 0;    // The number of batches whose loading began.
    bool at_end = false;  // True if no more batches are to be loaded, at the end or after an error.
    std::deque<Entry> queue;  // Batches that are loading or ready. Entries keep their addresses.
    absl::Status error;       // The first error that Next returned. Later calls return it too.
    CondVar ready;
  };

  // Starts threads up to the current setting. Threads above the setting wait.
  void StartThreadsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (static_cast<int>(threads_.size()) < tuner_.setting().threads) {
      threads_.emplace_back([this, i = static_cast<int>(threads_.size())] {
        pthread_setname_np(pthread_self(), fmt::format("data-{}", i).c_str());
        const SpanThread thread(spans_, fmt::format("input thread {}", i));
        UseOneIntraOpThread();
        Work(i);
      });
    }
    parked_.SignalAll();
    work_.SignalAll();
    CountCapacityLocked();
  }

  void CountCapacityLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    depth_.SetCapacity(static_cast<int64_t>(replicas_.size()) * tuner_.setting().prefetch);
  }

  bool IsFullLocked(const Replica& replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int>(replica.queue.size()) >= tuner_.setting().prefetch &&
           std::all_of(replica.queue.begin(), replica.queue.end(),
                       [](const Entry& entry) { return entry.done; });
  }

  // Called when Next returns a batch. `asked` is the time at which the call of Next began.
  void TuneLocked(MonotonicTime asked, bool full) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const MonotonicTime now = Clock::now();
    // Ignores the first batches, because at the start none is ready with any setting.
    if (taken_ < 2 * static_cast<int64_t>(replicas_.size())) {
      ++taken_;
      window_start_ = now;
      return;
    }
    ++window_.batches;
    window_.full += full ? 1 : 0;
    window_.wait_seconds += Seconds(now - asked) / static_cast<double>(replicas_.size());
    window_.seconds = Seconds(now - window_start_);
    window_.batch_bytes = largest_batch_;
    if (!tuner_.Complete(window_)) return;
    const std::string why = tuner_.Decide(window_);
    window_ = {};
    window_start_ = now;
    if (why.empty()) return;
    LogSetting(why);
    StartThreadsLocked();
  }

  // The body of thread `number` of the pool.
  void Work(int number) {
    absl::MutexLock lock(&mutex_);
    while (!stopping_) {
      if (number >= tuner_.setting().threads) {
        parked_.Wait(&mutex_);
        continue;
      }
      Replica* replica = ChooseLocked();
      if (replica == nullptr) {
        work_.Wait(&mutex_);
      } else {
        LoadOneLocked(*replica);
      }
    }
  }

  // Of the replicas that need a batch, returns the one that is furthest behind. Returns null if no
  // replica needs a batch.
  Replica* ChooseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Replica* chosen = nullptr;
    for (Replica& replica : replicas_) {
      if (replica.at_end || static_cast<int>(replica.queue.size()) >= tuner_.setting().prefetch)
        continue;
      if (chosen == nullptr || replica.begun < chosen->begun) chosen = &replica;
    }
    return chosen;
  }

  // Loads one batch, and releases the mutex meanwhile.
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
      if (const int64_t bytes = BytesOf(entry.batch.batch); bytes > largest_batch_) {
        largest_batch_ = bytes;
        const std::string why = tuner_.Fit(bytes);
        if (!why.empty()) LogSetting(why);
        CountCapacityLocked();
      }
    }
    entry.done = true;
    if (!entry.status.ok()) {
      replica.at_end = true;
    } else {
      depth_.AddReady(1);
    }
    replica.ready.Signal();
  }

  void WarnLocked(const Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (replica.queue.empty()) return;
    const LoadedBatch& batch = replica.queue.front().batch;
    LogWarning("the input pipeline is still loading examples {} to {} of epoch {}",
               batch.local.begin, batch.local.end, batch.position.epoch);
  }

  const Loader loader_;
  const std::shared_ptr<SpanRecorder> spans_ = SpanThread::Recorder();
  mutable absl::Mutex mutex_;
  CondVar work_, parked_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  LoaderTuner tuner_ ABSL_GUARDED_BY(mutex_);
  QueuePart depth_ ABSL_GUARDED_BY(mutex_);
  LoaderWindow window_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime window_start_ ABSL_GUARDED_BY(mutex_);
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // Counts batches only during the start.
  int64_t largest_batch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Replica> replicas_;  // mutex_ guards the elements. The size does not change.
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Pipeline> Pipeline::Make(DatasetPtr dataset, Sampler sampler, Position start,
                                         int first_replica, int local_replicas, int num_replicas,
                                         PipelineOptions options) {
  Loader loader(NotNull(std::move(dataset), "Pipeline"), sampler, start, first_replica,
                num_replicas, options);
  if (options.prefetch == 0 || options.threads == 0) {
    return std::make_unique<DirectPipeline>(std::move(loader), local_replicas);
  }
  return std::make_unique<ThreadedPipeline>(std::move(loader), local_replicas, options);
}

}  // namespace muster::data
