#include "common/train/state/checkpoint_evaluator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/train/evaluation.h"
#include "common/train/membership.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/checkpoint_replicas.h"

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
  absl::Status ChooseSplit();

  const CheckpointEvaluatorOptions options_;
  std::optional<CheckpointReplicas> replicas_;
  Split split_ = Split::kValidation;
  data::DatasetPtr dataset_;
  DamageLog damage_log_;
};

absl::Status CheckpointEvaluatorImpl::ChooseSplit() {
  const auto& declared = (*replicas_)[0].datasets();
  if (options_.split) {
    split_ = *options_.split;
    if (declared.contains(split_)) return absl::OkStatus();
    std::vector<std::string> names;
    for (const auto& [split, declaration] : declared) names.emplace_back(SplitName(split));
    return absl::NotFoundError(fmt::format(
        "there is no {} dataset: the program, or the job's data, has {}", SplitName(split_),
        names.empty() ? "none" : fmt::to_string(fmt::join(names, ", "))));
  }
  if (!declared.contains(split_)) split_ = Split::kTest;
  if (declared.contains(split_)) return absl::OkStatus();
  return absl::NotFoundError(
      "the program declares neither a validation nor a test dataset: there is nothing to evaluate");
}

absl::Status CheckpointEvaluatorImpl::Build() {
  MUSTER_ASSIGN_OR_RETURN(
      replicas_, CheckpointReplicas::Make(options_.job, options_.factory, options_.devices));
  MUSTER_RETURN_IF_ERROR(ChooseSplit());
  MUSTER_ASSIGN_OR_RETURN(dataset_, MakeDataset((*replicas_)[0], split_));
  return absl::OkStatus();
}

absl::StatusOr<CheckpointEvaluation> CheckpointEvaluatorImpl::Evaluate(
    const checkpoint::Snapshot& snapshot, const Hooks& hooks) {
  const MonotonicTime start = Clock::now();
  MUSTER_RETURN_IF_ERROR(replicas_->Restore(snapshot));
  const int count = replicas_->size();
  const auto membership =
      MakeLocalMembership(count, options_.job.timeouts.collective, CudaIndices(options_.devices));
  MUSTER_ASSIGN_OR_RETURN(Generation generation, membership->NextGeneration(0));
  PassOptions pass_options;
  pass_options.split = split_;
  pass_options.dataset = dataset_;
  pass_options.batch_size =
      BatchSizeAfterTraining(options_.job, snapshot.state.global_batch_size, count);
  pass_options.replicas_on_host = count;
  pass_options.damage_log = &damage_log_;
  pass_options.stop = hooks.cancelled;
  std::vector<PassResult> passes(count);
  const auto run = [&](int i) -> absl::Status {
    PassOptions own = pass_options;
    if (i == 0) own.progress = hooks.progress;
    MUSTER_ASSIGN_OR_RETURN(
        passes[i], RunPass(options_.job, &(*replicas_)[i], generation.replicas[i].get(), own));
    return absl::OkStatus();
  };
  // Wakes the replicas that wait for the failed replica.
  const auto wake = [&](const absl::Status& failure) {
    for (auto& communicator : generation.replicas) communicator->Abort(PeerLost(Message(failure)));
  };
  MUSTER_RETURN_IF_ERROR(replicas_->Run(run, wake));
  PassResult& pass = passes[0];
  if (pass.stopped)
    return Preempted(fmt::format("the evaluation of step {} was cancelled", snapshot.state.step));
  return CheckpointEvaluation{snapshot.state.step, split_, std::move(pass.metrics), pass.examples,
                              Seconds(Clock::now() - start)};
}

}  // namespace

int64_t BatchSizeAfterTraining(const Job& job, int64_t global_batch_size, int replicas) {
  constexpr int64_t kUnknown = 32;  // The default of Keras.
  int64_t batch = kUnknown;
  if (job.per_replica_batch_size) {
    batch = *job.per_replica_batch_size * replicas;
  } else if (global_batch_size > 0) {
    batch = global_batch_size;
  } else if (job.global_batch_size) {
    batch = *job.global_batch_size;
  }
  return PassBatchSize(job, batch, replicas);
}

absl::StatusOr<std::unique_ptr<CheckpointEvaluator>> CheckpointEvaluator::Make(
    CheckpointEvaluatorOptions options) {
  auto evaluator = std::make_unique<CheckpointEvaluatorImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(evaluator->Build());
  return evaluator;
}

}  // namespace muster
