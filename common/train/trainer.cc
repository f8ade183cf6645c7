#include "common/train/trainer.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "common/base/faults/process_fault.h"
#include "common/base/logging.h"
#include "common/base/process/cores.h"
#include "common/flight/spans.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/evaluation.h"
#include "common/train/exchange/central_storage.h"
#include "common/train/loop/loop.h"
#include "common/train/loop/loop_save.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/weights.h"

namespace muster {
namespace {

using collective::Communicator;

// Collects the results of this process's replicas. The first error wakes the other replicas. An
// agreed stop does not wake them: they stop by themselves, and some may still be in the step that
// agreed on the stop.
class Outcome {
 public:
  explicit Outcome(std::function<void(const absl::Status&)> wake) : wake_(std::move(wake)) {}
  void Set(const absl::Status& status) {
    if (status.ok()) return;
    bool first_error = false;
    {
      absl::MutexLock lock(&mutex_);
      first_error = !absl::IsCancelled(status) && (status_.ok() || absl::IsCancelled(status_));
      // An error that a replica caused itself says more than an error from another replica. If one
      // error contains the text of another, it says more.
      const bool says_more = ExitCodeOf(status_) == ExitCode::kRetryable &&
                             ExitCodeOf(status) != ExitCode::kRetryable &&
                             !absl::IsCancelled(status);
      const bool goes_on = status.code() == status_.code() &&
                           Message(status).find(Message(status_)) != std::string_view::npos;
      // Other replicas receive the error of a failed device or host without the mark of a process
      // fault. The marked error replaces it.
      const bool faulty = ExitCodeOf(status_) == ExitCode::kRetryable && IsProcessFault(status);
      if (status_.ok() || first_error || says_more || faulty ||
          (goes_on && !IsProcessFault(status_)))
        status_ = status;
    }
    if (first_error) wake_(status);
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

// Returns the number of intra-op threads of a replica. The replicas on a host share its cores.
int ThreadsPerReplica(int replicas_on_host) {
  // OMP_NUM_THREADS, if set, limits the threads of a replica.
  static const int allowed = at::get_num_threads();
  return std::clamp(AvailableCores() / std::max(1, replicas_on_host), 1, std::max(1, allowed));
}

}  // namespace

Trainer::~Trainer() = default;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Make(TrainerOptions options) {
  const Job& job = options.job;
  if (!job.global_batch_size && !job.per_replica_batch_size) {
    return ConfigurationError(
        "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
  }
  if (job.deterministic) ComputeDeterministically();
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(options)));
  for (const c10::Device& device : trainer->options_.devices) {
    const Replica* first = trainer->replicas_.empty() ? nullptr : trainer->replicas_[0].get();
    MUSTER_ASSIGN_OR_RETURN(auto replica, Replica::Make(trainer->options_.job,
                                                        trainer->options_.factory, device, first));
    if (!trainer->replicas_.empty()) replica->ShareTables(*trainer->replicas_[0]);
    trainer->replicas_.push_back(std::move(replica));
  }
  if (job.strategy == StrategyKind::kCentralStorage)
    MUSTER_RETURN_IF_ERROR(trainer->CentralizeVariables());
  if (trainer->options_.checkpoints != nullptr)
    MUSTER_RETURN_IF_ERROR(CheckSavable(*trainer->replicas_[0]));
  trainer->has_own_.resize(trainer->replicas_.size());
  for (const auto& replica : trainer->replicas_) {
    trainer->states_.push_back(InitialLoopState(trainer->options_.job, *replica));
    trainer->states_.back().whole = trainer->options_.begins_run;
  }
  MUSTER_RETURN_IF_ERROR(trainer->MakeDatasets());
  return trainer;
}

absl::Status Trainer::CentralizeVariables() {
  for (size_t o = 0; o < replicas_[0]->optimizers().size(); ++o) {
    std::vector<std::vector<at::Tensor>> candidates;
    for (const auto& replica : replicas_) candidates.push_back(replica->optimizers()[o].candidates);
    const NamedOptimizer& first = replicas_[0]->optimizers()[o];
    std::vector<bool> trained;
    for (const int place : first.place) trained.push_back(place >= 0);
    MUSTER_ASSIGN_OR_RETURN(
        auto central,
        MakeCentralOptimizers(first.spec, candidates, options_.job.timeouts.collective,
                              first.candidate_groups, trained, options_.separate_variables));
    for (size_t r = 0; r < replicas_.size(); ++r)
      replicas_[r]->optimizers()[o].rule = std::move(central[r]);
  }
  return absl::OkStatus();
}

absl::Status Trainer::MakeDatasets() {
  const bool by_file = replicas_[0]->job_datasets().options().auto_shard == data::AutoShard::kFile;
  for (const auto& [split, declaration] : replicas_[0]->datasets()) {
    if (split == Split::kTrain && by_file) {
      // The replicas open the files of this split when they train. This dataset only describes the
      // examples.
      MUSTER_ASSIGN_OR_RETURN(datasets_[split], replicas_[0]->job_datasets().OpenFirst());
      continue;
    }
    MUSTER_ASSIGN_OR_RETURN(datasets_[split],
                            MakeDataset(*replicas_[0], split,
                                        /*may_be_unsized=*/split == Split::kTrain));
    if (split == Split::kTrain && datasets_[split]->size() == 0)
      return ConfigurationError("the train dataset is empty");
    if (split != Split::kTrain && options_.evaluated_examples)
      datasets_[split] = data::Take(datasets_[split], *options_.evaluated_examples);
  }
  MUSTER_ASSIGN_OR_RETURN(named_datasets_, MakeNamedDatasets(*replicas_[0]));
  return absl::OkStatus();
}

absl::Status Trainer::Restore(const checkpoint::Snapshot& snapshot) {
  // The other replicas receive the state at the start of the first generation.
  MUSTER_ASSIGN_OR_RETURN(kept_, RestoreStacked(snapshot, *replicas_[0]));
  return RestoreReplica(snapshot, options_.job, replicas_[0].get(), &states_[0]);
}

absl::Status Trainer::Load(checkpoint::FileSystem& files) {
  std::set<std::string> filled;
  MUSTER_RETURN_IF_ERROR(LoadWeights(files, options_.job, replicas_[0].get(), &filled));
  // The other replicas receive the state at the start of the first generation. They receive their
  // kPerReplica buffers from kept_.
  for (const NamedBuffer& buffer : replicas_[0]->replica_buffers())
    if (filled.contains(buffer.name))
      kept_.emplace_back(buffer.name, buffer.tensor.detach().to(at::kCPU).unsqueeze(0).clone());
  return absl::OkStatus();
}

void Trainer::TakeOverTrainable(size_t i, const LoopContext& context, Communicator* communicator) {
  std::vector<uint8_t> mine = replicas_[i]->Trainable();
  if (mine.empty() || communicator->size() == 1) return;
  at::Tensor flags = at::empty({static_cast<int64_t>(mine.size())}, at::kByte);
  std::copy(mine.begin(), mine.end(), flags.mutable_data_ptr<uint8_t>());
  flags = flags.to(replicas_[i]->device());
  ThrowIfError(communicator->Broadcast(BufferOf(flags), context.owner_replica)->Wait());
  flags = flags.to(at::kCPU);
  const uint8_t* data = flags.const_data_ptr<uint8_t>();
  const std::vector<uint8_t> owners(data, data + mine.size());
  if (owners == mine) return;
  // The slots now belong to other parameters, so this state is not valid.
  states_[i].whole = false;
  ThrowIfError(replicas_[i]->SetTrainable(owners));
}

// Called in the replica's thread, by all replicas of the generation.
void Trainer::Attach(size_t i, const LoopContext& context, Communicator* communicator) {
  const Job& job = options_.job;
  LoopState& state = states_[i];
  if (state.global_batch_size == 0) {
    state.global_batch_size = job.global_batch_size
                                  ? *job.global_batch_size
                                  : *job.per_replica_batch_size * context.num_replicas;
  }
  // The number of replicas may change later. The batch size, and the learning rate scaled for it,
  // stay those of the first start.
  int64_t& scaled_for = state.extras.replicas;
  if (scaled_for == 0 && replicas_[i]->scales_with_replicas()) scaled_for = context.num_replicas;
  BroadcastBatchSize(replicas_[i]->device(), communicator, context.owner_replica, &state);
  auto data = MakeTrainData(job, *replicas_[i], datasets_.at(Split::kTrain),
                            state.global_batch_size, communicator);
  ThrowIfError(data.status());
  train_data_[i] = std::make_shared<const TrainData>(*std::move(data));
  const auto schedule =
      ScheduleOf(job, *train_data_[i], state.global_batch_size, std::max<int64_t>(1, scaled_for));
  ThrowIfError(schedule.status());
  TakeOverTrainable(i, context, communicator);
  ThrowIfError(DistributeReplicaBuffers(*replicas_[i], communicator, kept_, has_own_[i] != 0));
  has_own_[i] = 1;
  ThrowIfError(replicas_[i]->Attach(communicator, *schedule, job.collective));
}

// The result must be equal on all members, because each computes the batches of a pass from it.
int Trainer::DeclaredReplicas(int num_replicas, int world_size) const {
  return (options_.declared_members * num_replicas + world_size - 1) / world_size;
}

absl::Status Trainer::CheckLoaded(const Generation& generation) const {
  if (unloaded_.ok() || states_[0].step != 0) return absl::OkStatus();
  if (generation.owner_step <= 0) return unloaded_;
  LogWarning("{}; this has no effect, because other processes hold the state of the run",
             Message(unloaded_));
  return absl::OkStatus();
}

LoopContext Trainer::ContextOf(const Generation& generation, Membership* membership,
                               LocalExchange* exchange, SharedPipelines* pipelines) {
  const auto& counts = generation.replicas_per_rank;
  const int num_replicas = std::accumulate(counts.begin(), counts.end(), 0);
  const int first_replica = std::accumulate(counts.begin(), counts.begin() + generation.rank, 0);
  const int owner_replica = std::accumulate(counts.begin(), counts.begin() + generation.owner, 0);
  return {.job = options_.job,
          .datasets = datasets_,
          .named_datasets = named_datasets_,
          .membership = membership,
          .observers = options_.observers,
          .checkpoints = options_.checkpoints,
          .snapshots = &snapshots_,
          .kept = &kept_,
          .exchange = exchange,
          .num_replicas = num_replicas,
          .first_replica = first_replica,
          .owner_replica = owner_replica,
          .world_size = generation.world_size(),
          .local_replicas = static_cast<int>(replicas_.size()),
          .for_servers = options_.for_servers,
          .pipelines = pipelines,
          .replicas_on_host = generation.replicas_on_host,
          .damage_log = &damage_log_,
          .declared_replicas = DeclaredReplicas(num_replicas, generation.world_size()),
          .meter = options_.meter};
}

void Trainer::LogReplicas(const LoopContext& context, int threads) const {
  LogInfo("Number of devices: {}", context.num_replicas);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    LogInfo("replica {} on {}, {} intra-op thread{}", context.first_replica + i,
            replicas_[i]->device().str(), threads, threads == 1 ? "" : "s");
  }
}

absl::Status Trainer::RunReplica(size_t i, const LoopContext& context, Communicator* communicator) {
  // A failed device may throw at any access.
  return CatchProgramErrors("training", [&] {
    const c10::DeviceGuard device(replicas_[i]->device());
    ThrowIfError(CatchProgramErrors("setting up", [&] { Attach(i, context, communicator); }));
    ThrowIfError(LoopImpl(context, replicas_[i].get(), communicator, static_cast<int>(i),
                          *train_data_[i], &states_[i])
                     .Run());
  });
}

absl::Status Trainer::RunGeneration(Generation* generation, Membership* membership) {
  MUSTER_RETURN_IF_ERROR(CheckLoaded(*generation));
  LocalExchange exchange(static_cast<int>(replicas_.size()), options_.job.timeouts.collective);
  SharedPipelines pipelines;
  const LoopContext context = ContextOf(*generation, membership, &exchange, &pipelines);
  const int threads = ThreadsPerReplica(generation->replicas_on_host);
  LogReplicas(context, threads);
  train_data_.assign(replicas_.size(), {});
  Outcome outcome([&](const absl::Status& status) {
    exchange.Abort(status);
    // All peers receive the message of the abort. They treat it as a lost peer and get the reason
    // from the coordinator. Only this process reports the failure itself.
    const absl::Status to_peers = PeerLost(Message(status));
    for (auto& communicator : generation->replicas) communicator->Abort(to_peers);
  });
  const auto spans = SpanThread::Recorder();
  const auto run = [&](size_t i) {
    at::set_num_threads(threads);
    const SpanThread thread(spans,
                            i == 0 ? "main loop" : fmt::format("main loop, local replica {}", i));
    outcome.Set(RunReplica(i, context, generation->replicas[i].get()));
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < replicas_.size(); ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& thread : others) thread.join();
  train_data_.clear();
  for (auto& replica : replicas_) replica->Detach();
  return outcome.Get();
}

absl::Status Trainer::Drain(Membership* membership) {
  if (options_.checkpoints == nullptr) return absl::OkStatus();
  membership->SetPhase(Phase::kSave, states_[0].step);
  const absl::Status saved = options_.checkpoints->Drain();
  return saved.ok() ? saved : SaveError(states_[0].step, saved);
}

// If a generation ends after some replicas of this process have committed a step and others have
// not, their states are one step apart.
void Trainer::GatherNewest() {
  // The replicas share the tables. If the tables are incomplete, no replica has a state.
  if (!states_[0].tables_whole)
    for (LoopState& state : states_) state.whole = false;
  size_t newest = 0;
  for (size_t i = 1; i < states_.size(); ++i)
    if (states_[i].last_step() > states_[newest].last_step()) newest = i;
  if (newest == 0) return;
  const at::NoGradGuard no_grad;
  const absl::Status same = replicas_[0]->SetTrainable(replicas_[newest]->Trainable());
  // On an error, replica 0 continues from its own state.
  if (!same.ok()) return LogWarning("{}", Message(same));
  std::vector<at::Tensor> from = replicas_[newest]->replicated_state(),
                          to = replicas_[0]->replicated_state();
  const std::set<std::string> kept = replicas_[newest]->kept().callbacks();
  for (const auto& [all, replica] : {std::pair(&from, newest), std::pair(&to, size_t{0})}) {
    const std::vector<at::Tensor> of_callbacks = replicas_[replica]->kept().Of(kept);
    all->insert(all->end(), of_callbacks.begin(), of_callbacks.end());
  }
  replicas_[0]->kept().Only(kept);
  for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i]);
  const int64_t saved_step = states_[0].saved_step, save_due = states_[0].save_due,
                end_saved_step = states_[0].end_saved_step;
  states_[0] = states_[newest];
  states_[0].saved_step = saved_step;
  states_[0].end_saved_step = end_saved_step;
  states_[0].save_due = save_due;
}

absl::Status Trainer::StateLost(Membership* membership) {
  const std::string why =
      "no process has a whole state of the run: the process that had it was lost while it sent the "
      "state to the others";
  if (!options_.begins_run)
    return PeerLost(why + "; waiting for a chief that continues from the last checkpoint");
  // Waits for a save in progress, whose state is newer than the previous checkpoint.
  const absl::Status saved = Drain(membership);
  if (!saved.ok()) LogWarning("{}", Message(saved));
  if (options_.on_state_lost) options_.on_state_lost(why);
  return PeerLost(why);
}

absl::Status Trainer::RunOnce(Membership* membership) {
  auto generation = membership->NextGeneration(states_[0].last_step());
  if (!generation.ok()) return generation.status();
  if (generation->job_done) return absl::OkStatus();
  absl::Status status =
      generation->owner_step < 0 ? StateLost(membership) : RunGeneration(&*generation, membership);
  generation->replicas.clear();  // Communicators must not outlive the generation.
  for (const LoopState& state : states_)
    if (state.last_step() > generation->owner_step) has_trained_ = true;
  status = ClassifyFault(status, has_trained_ ? 0 : options_.restarts);
  if (!IsProcessFault(status)) {
    const absl::Status gathered =
        CatchProgramErrors("collecting the newest state", [&] { GatherNewest(); });
    if (!gathered.ok() && (status.ok() || ExitCodeOf(status) == ExitCode::kRetryable))
      status = ProcessFault(Message(gathered), /*uncertain=*/false);
  }
  if (IsProcessFault(status)) {
    // A save in progress has its own copy of a complete state, so it may finish.
    if (const absl::Status saved = Drain(membership); !saved.ok()) LogWarning("{}", Message(saved));
    return status;
  }
  if (ExitCodeOf(status) == ExitCode::kRetryable) return membership->Explain(status);
  if (status.ok() || ExitCodeOf(status) == ExitCode::kPreempted) {
    // The other members wait for this process until its save is complete.
    const absl::Status saved = Drain(membership);
    if (saved.ok()) return membership->Finish(states_[0].step, status);
    status = saved;
  }
  membership->ReportFailure(status);
  return status;
}

absl::Status Trainer::Run(Membership* membership) {
  while (true) {
    absl::Status status = RunOnce(membership);
    // An error that cannot be retried ends this process, even if other members continue.
    if (IsProcessFault(status) || membership->JobEnded() ||
        ExitCodeOf(status) != ExitCode::kRetryable)
      return status;
    LogWarning("this generation is over: {}; this task joins the next one {}", Message(status),
               states_[0].last_step() < 0
                   ? std::string("without a state")
                   : fmt::format("with the state after step {}", states_[0].step));
  }
}

}  // namespace muster
