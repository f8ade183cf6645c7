#include "common/train/checkpoint_evaluator.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "common/base/logging.h"
#include "common/train/devices.h"
#include "common/train/evaluation.h"
#include "common/train/membership.h"
#include "common/train/snapshot.h"

namespace muster {
namespace {

class CheckpointEvaluatorImpl : public CheckpointEvaluator {
 public:
  explicit CheckpointEvaluatorImpl(CheckpointEvaluatorOptions options)
      : options_(std::move(options)) {}

  absl::Status Build();
  Split split() const override { return split_; }
  int64_t examples() const override { return dataset_->size(); }
  absl::StatusOr<CheckpointEvaluation> Evaluate(const checkpoint::Snapshot& snapshot,
                                                const Hooks& hooks) override;

 private:
  int64_t BatchSize(const checkpoint::Snapshot& snapshot) const;

  const CheckpointEvaluatorOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  Split split_ = Split::kValidation;
  data::DatasetPtr dataset_;
};

absl::Status CheckpointEvaluatorImpl::Build() {
  for (const c10::Device& device : options_.devices) {
    const Replica* first = replicas_.empty() ? nullptr : replicas_[0].get();
    MUSTER_ASSIGN_OR_RETURN(auto replica,
                            Replica::Make(options_.job, options_.factory, device, first));
    if (!replicas_.empty()) replica->ShareTables(*replicas_[0]);
    replicas_.push_back(std::move(replica));
  }
  const auto& declared = replicas_.at(0)->datasets();
  if (!declared.contains(split_)) split_ = Split::kTest;
  if (!declared.contains(split_)) {
    return absl::NotFoundError(
        "the program declares neither a validation nor a test dataset: there is nothing to "
        "evaluate");
  }
  MUSTER_ASSIGN_OR_RETURN(dataset_, MakeDataset(*replicas_[0], split_));
  return absl::OkStatus();
}

// How the pass is divided does not change its numbers. The batch of the whole job may not fit on
// fewer devices, but the job says so only with a batch size for each replica.
int64_t CheckpointEvaluatorImpl::BatchSize(const checkpoint::Snapshot& snapshot) const {
  const Job& job = options_.job;
  if (job.per_replica_batch_size)
    return *job.per_replica_batch_size * static_cast<int64_t>(replicas_.size());
  if (snapshot.state.global_batch_size > 0) return snapshot.state.global_batch_size;
  return job.global_batch_size.value_or(1);
}

absl::StatusOr<CheckpointEvaluation> CheckpointEvaluatorImpl::Evaluate(
    const checkpoint::Snapshot& snapshot, const Hooks& hooks) {
  const MonotonicTime start = Clock::now();
  for (auto& replica : replicas_) MUSTER_RETURN_IF_ERROR(RestoreModels(snapshot, replica.get()));
  const int count = static_cast<int>(replicas_.size());
  const auto membership =
      MakeLocalMembership(count, options_.job.timeouts.collective, CudaIndices(options_.devices));
  MUSTER_ASSIGN_OR_RETURN(Generation generation, membership->NextGeneration(0));

  static const int allowed = at::get_num_threads();
  const int threads = std::clamp(AvailableCores() / count, 1, std::max(1, allowed));
  std::vector<absl::StatusOr<PassResult>> results(count, absl::UnknownError(""));
  const auto run = [&](int i) {
    at::set_num_threads(threads);
    const c10::DeviceGuard device(replicas_[i]->device());
    PassOptions options;
    options.split = split_;
    options.dataset = dataset_;
    options.batch_size = BatchSize(snapshot);
    options.stop = hooks.cancelled;
    if (i == 0) options.progress = hooks.progress;
    results[i] = RunPass(options_.job, replicas_[i].get(), generation.replicas[i].get(), options);
    if (results[i].ok()) return;
    // The others wait for this one.
    for (auto& communicator : generation.replicas)
      communicator->Abort(PeerLost(Message(results[i].status())));
  };
  std::vector<std::thread> others;
  for (int i = 1; i < count; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& thread : others) thread.join();

  // What a replica did itself says more than what it heard of the others.
  absl::Status failure;
  for (const auto& result : results) {
    if (!result.ok() && (failure.ok() || ExitCodeOf(failure) == ExitCode::kRetryable))
      failure = result.status();
  }
  if (!failure.ok()) return failure;
  PassResult& pass = *results[0];
  if (pass.stopped)
    return Preempted(fmt::format("the evaluation of step {} was cancelled", snapshot.state.step));
  return CheckpointEvaluation{snapshot.state.step, split_, std::move(pass.metrics), pass.examples,
                              Seconds(Clock::now() - start)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointEvaluator>> CheckpointEvaluator::Make(
    CheckpointEvaluatorOptions options) {
  auto evaluator = std::make_unique<CheckpointEvaluatorImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(evaluator->Build());
  return evaluator;
}

}  // namespace muster
