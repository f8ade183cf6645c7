// The input pipeline over data of unknown size. One thread loads the next batches ahead, because
// more threads would not read a stream faster. The number of batches ahead is limited, because
// StreamDataset keeps few examples for replicas that are behind.
#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/data/batches.h"
#include "common/data/job/load_examples.h"
#include "common/data/pipeline.h"
#include "common/data/single_thread.h"

namespace muster::data {
namespace {

class StreamPipeline final : public Pipeline {
 public:
  StreamPipeline(DatasetPtr dataset, const StreamPlan& plan, int replica, int num_replicas,
                 const PipelineOptions& options)
      : dataset_(std::move(dataset)),
        plan_(plan),
        replica_(replica),
        num_replicas_(num_replicas),
        options_(options),
        position_(plan.start),
        data_(plan.start_data),
        depth_(options.depth) {
    if (direct()) return;
    {
      absl::MutexLock lock(&mutex_);
      depth_.SetCapacity(ahead());
    }
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "data-stream");
      UseOneIntraOpThread();
      Work();
    });
  }

  ~StreamPipeline() override {
    Stop(absl::CancelledError("The input pipeline was closed."));
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<LoadedBatch> Next(int /*local_replica*/) override {
    if (direct()) return LoadNow();
    absl::MutexLock lock(&mutex_);
    while (error_.ok() && queue_.empty()) {
      if (ready_.WaitFor(&mutex_, std::chrono::seconds(10)))
        LogWarning("the input pipeline is still waiting for the next examples of the stream");
    }
    MUSTER_RETURN_IF_ERROR(error_);
    absl::StatusOr<LoadedBatch> batch = std::move(queue_.front());
    queue_.pop_front();
    error_ = batch.status();
    if (batch.ok()) depth_.AddReady(-1);
    work_.Signal();
    return batch;
  }

  Setting setting() const override { return {direct() ? 0 : 1, ahead()}; }

  void Stop(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    error_.Update(why);
    work_.SignalAll();
    ready_.SignalAll();
  }

 private:
  static constexpr int kMaxAhead = 4;  // Must be below StreamDataset::kKept.
  int ahead() const {
    return options_.prefetch == PipelineOptions::kAuto ? 2 : std::min(options_.prefetch, kMaxAhead);
  }
  bool direct() const { return ahead() == 0; }

  absl::StatusOr<LoadedBatch> LoadNow() {
    {
      absl::MutexLock lock(&mutex_);
      MUSTER_RETURN_IF_ERROR(error_);
    }
    absl::StatusOr<LoadedBatch> batch = Load();
    absl::MutexLock lock(&mutex_);
    error_.Update(batch.status());
    MUSTER_RETURN_IF_ERROR(error_);
    return batch;
  }

  void Work() {
    const auto most = static_cast<size_t>(ahead());
    for (bool good = true; good;) {
      {
        absl::MutexLock lock(&mutex_);
        while (!stopping_ && queue_.size() >= most) work_.Wait(&mutex_);
        if (stopping_) return;
      }
      absl::StatusOr<LoadedBatch> batch = Load();
      good = batch.ok();
      absl::MutexLock lock(&mutex_);
      queue_.push_back(std::move(batch));
      if (good) depth_.AddReady(1);
      ready_.Signal();
    }
  }

  absl::StatusOr<int64_t> Available(int64_t count) const {
    c10::AutoGradMode no_gradients(false);
    try {
      return dataset_->Available(data_.offset, data_.offset + count, ContextOfPass());
    } catch (...) {
      return CaughtException(
          fmt::format("The dataset, at pass {}, example {},", data_.epoch, data_.offset));
    }
  }

  // Loads the batch at position_ and advances position_.
  absl::StatusOr<LoadedBatch> Load() {
    const int64_t size = plan_.global_batch_size;
    // The smallest number of examples of a batch.
    const int64_t needed = plan_.drop_remainder ? size : 1;
    MUSTER_ASSIGN_OR_RETURN(const int64_t available, Available(size + needed));
    const int64_t count = std::min(size, available);
    if (count < needed) {
      return ConfigurationError(fmt::format(
          "The dataset has {} more in pass {} after {} examples, and training is to go "
          "on there: does it give the same examples again?",
          plan_.drop_remainder ? "no whole batch" : "no example", data_.epoch, data_.offset));
    }
    const bool pass_ends = available - count < needed;
    const int64_t batches = position_.offset / size + 1;
    const bool epoch_ends =
        pass_ends || (plan_.steps_per_epoch > 0 && batches >= plan_.steps_per_epoch);
    LoadedBatch loaded;
    loaded.position = position_;
    loaded.global = {position_.offset, position_.offset + count};
    loaded.local = ReplicaSlice(loaded.global.begin, loaded.global.end, replica_, num_replicas_);
    loaded.global_examples = count;
    MUSTER_RETURN_IF_ERROR(LoadSlice(&loaded));
    position_ = epoch_ends ? Position{position_.epoch + 1, 0}
                           : Position{position_.epoch, loaded.global.end};
    data_ = pass_ends ? Position{data_.epoch + 1, 0} : Position{data_.epoch, data_.offset + count};
    loaded.next = position_;
    loaded.next_data = data_;
    return loaded;
  }

  absl::Status LoadSlice(LoadedBatch* loaded) const {
    const int64_t shift = data_.offset - position_.offset;
    const Slice own{loaded->local.begin + shift, loaded->local.end + shift};
    if (own.size() > 0) return LoadInto(*dataset_, own, ContextOfPass(), options_, loaded);
    // Loads the first example of the global batch for the shape of an empty slice.
    MUSTER_ASSIGN_OR_RETURN(
        loaded->batch, LoadExamples(*dataset_, {data_.offset, data_.offset + 1}, ContextOfPass()));
    for (at::Tensor& component : loaded->batch) component = component.narrow(0, 0, 0).clone();
    return options_.prepare ? options_.prepare(loaded) : absl::OkStatus();
  }

  Context ContextOfPass() const { return {options_.seed, data_.epoch}; }

  const DatasetPtr dataset_;
  const StreamPlan plan_;
  const int replica_, num_replicas_;
  const PipelineOptions options_;
  Position position_, data_;  // Only the loading thread uses these.

  absl::Mutex mutex_;
  CondVar work_, ready_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::StatusOr<LoadedBatch>> queue_ ABSL_GUARDED_BY(mutex_);
  QueuePart depth_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // Not started if Next loads the batches.
};

}  // namespace

std::unique_ptr<Pipeline> Pipeline::MakeStream(DatasetPtr dataset, const StreamPlan& plan,
                                               int replica, int num_replicas,
                                               const PipelineOptions& options) {
  return std::make_unique<StreamPipeline>(NotNull(std::move(dataset), "Pipeline"), plan, replica,
                                          num_replicas, options);
}

}  // namespace muster::data
