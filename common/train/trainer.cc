#include "common/train/trainer.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "common/base/logging.h"
#include "common/train/devices.h"
#include "common/train/loop.h"

namespace muster {
namespace {

// The first error of this process's replicas; it wakes the others.
class FirstError {
 public:
  explicit FirstError(std::function<void(const absl::Status&)> wake) : wake_(std::move(wake)) {}
  void Set(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      const bool known = !status_.ok();
      // What a replica did itself says more than what it heard of the others.
      if (!known || (ExitCodeOf(status_) == ExitCode::kRetryable &&
                     ExitCodeOf(status) != ExitCode::kRetryable)) {
        status_ = status;
      }
      if (known) return;
    }
    wake_(status);
  }
  absl::Status Get() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  const std::function<void(const absl::Status&)> wake_;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

Trainer::~Trainer() = default;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Make(TrainerOptions options) {
  const Job& job = options.job;
  if (!job.global_batch_size && !job.per_replica_batch_size) {
    return ConfigurationError(
        "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
  }
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(options)));
  for (const c10::Device& device : trainer->options_.devices) {
    MUSTER_ASSIGN_OR_RETURN(
        auto replica, Replica::Make(trainer->options_.job, trainer->options_.factory, device));
    trainer->replicas_.push_back(std::move(replica));
  }
  MUSTER_RETURN_IF_ERROR(trainer->MakeDatasets());
  return trainer;
}

absl::Status Trainer::MakeDatasets() {
  for (const auto& [split, declaration] : replicas_[0]->datasets()) {
    absl::StatusOr<data::DatasetPtr> made;
    MUSTER_RETURN_IF_ERROR(
        CatchProgramErrors(fmt::format("making the {} dataset", SplitName(split)),
                           [&] { made = declaration.make(); }));
    MUSTER_RETURN_IF_ERROR(made.status());
    if (*made == nullptr)
      return ProgramError(fmt::format("the {} dataset is null", SplitName(split)));
    MUSTER_RETURN_IF_ERROR(data::CheckSized(**made, SplitName(split)));
    if ((*made)->size() == 0 && split == Split::kTrain)
      return ConfigurationError("the train dataset is empty");
    datasets_[split] = *std::move(made);
  }
  return absl::OkStatus();
}

absl::Status Trainer::RunGeneration(Generation* generation, Membership* membership) {
  const Job& job = options_.job;
  const auto& counts = generation->replicas_per_rank;
  const int num_replicas = std::accumulate(counts.begin(), counts.end(), 0);
  if (global_batch_size_ == 0) {
    global_batch_size_ =
        job.global_batch_size ? *job.global_batch_size : *job.per_replica_batch_size * num_replicas;
  }
  const int first_replica = std::accumulate(counts.begin(), counts.begin() + generation->rank, 0);
  const int owner_replica = std::accumulate(counts.begin(), counts.begin() + generation->owner, 0);
  // OMP_NUM_THREADS, where it is set, bounds what a replica takes.
  static const int allowed = at::get_num_threads();
  const int threads = std::clamp(AvailableCores() / std::max(1, generation->replicas_on_host), 1,
                                 std::max(1, allowed));
  LogInfo("Number of devices: {}", num_replicas);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    LogInfo("replica {} on {}, {} intra-op thread{}", first_replica + i,
            replicas_[i]->device().str(), threads, threads == 1 ? "" : "s");
  }

  LocalExchange exchange(static_cast<int>(replicas_.size()), job.timeouts.collective);
  const LoopContext context{job,           datasets_,
                            membership,    options_.observers,
                            &exchange,     global_batch_size_,
                            num_replicas,  first_replica,
                            owner_replica, generation->world_size()};
  const data::Sampler sampler =
      TrainSampler(job, *replicas_[0], datasets_.at(Split::kTrain)->size(), global_batch_size_);
  ScheduleContext schedule;
  schedule.steps_per_epoch = sampler.batches_per_epoch();
  if (schedule.steps_per_epoch == 0) {
    return ConfigurationError(
        fmt::format("the train dataset has {} examples, fewer than the global batch of {}, and "
                    "drop_remainder drops them",
                    datasets_.at(Split::kTrain)->size(), global_batch_size_));
  }
  schedule.total_steps = TotalSteps(job, schedule.steps_per_epoch);

  FirstError first([&](const absl::Status& status) {
    exchange.Abort(status);
    // The communicators' last words travel to all peers. To them this is a lost peer, whose story
    // the coordinator tells; the failure itself is reported by this process alone.
    const absl::Status to_peers = PeerLost(Message(status));
    for (auto& communicator : generation->replicas) communicator->Abort(to_peers);
  });
  std::vector<int64_t> steps(replicas_.size(), last_step_);
  const auto run = [&](size_t i) {
    at::set_num_threads(threads);
    const c10::DeviceGuard device(replicas_[i]->device());
    Communicator* communicator = generation->replicas[i].get();
    absl::Status status = CatchProgramErrors("setting up", [&] {
      ThrowIfError(replicas_[i]->Attach(communicator, schedule, job.collective));
    });
    if (status.ok()) {
      LoopImpl loop(context, replicas_[i].get(), communicator, static_cast<int>(i));
      status = loop.Run();
      steps[i] = loop.state().steps;
    }
    if (!status.ok()) first.Set(status);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < replicas_.size(); ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& thread : others) thread.join();
  for (auto& replica : replicas_) replica->Detach();
  last_step_ = steps[0];
  return first.Get();
}

absl::Status Trainer::Run(Membership* membership) {
  auto generation = membership->NextGeneration(last_step_);
  if (!generation.ok()) return generation.status();
  const absl::Status status = RunGeneration(&*generation, membership);
  switch (ExitCodeOf(status)) {
    case ExitCode::kDone:
    case ExitCode::kPreempted:
      return membership->Finish(last_step_, status);
    case ExitCode::kRetryable:
      // A later generation could go on from last_step_; for now the coordinator's verdict ends the
      // job.
      return membership->Explain(status);
    default:
      membership->ReportFailure(status);
      return status;
  }
}

}  // namespace muster
