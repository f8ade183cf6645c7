#include "worker/parameter_server/ps_worker.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "common/base/faults/process_fault.h"
#include "common/base/logging.h"
#include "common/base/process/cores.h"
#include "common/base/wait.h"
#include "common/flight/spans.h"
#include "common/push_pull/client.h"
#include "common/push_pull/options.h"
#include "common/rpc/host.h"
#include "common/telemetry/task_meter.h"
#include "common/train/evaluation.h"
#include "common/train/input/loop_data.h"
#include "common/train/loop/loop.h"
#include "common/train/replica/devices/devices.h"
#include "worker/parameter_server/lease_client.h"
#include "worker/parameter_server/ps_loop.h"

namespace muster::worker {
namespace {

// Time within which the end of a membership is noticed.
constexpr Duration kTick = std::chrono::milliseconds(50);

push_pull::ClientView ViewOf(const proto::View& view) {
  push_pull::ClientView result;
  result.number = view.number();
  result.ticket = view.ticket();
  for (const proto::ShardPlace& place : view.shards()) {
    if (place.shard() >= static_cast<int>(result.shards.size()))
      result.shards.resize(place.shard() + 1);
    result.shards[place.shard()] = {place.primary(), place.primary_address(),
                                    place.primary_host_id(), place.restored()};
  }
  return result;
}

class PsWorkerImpl final : public PsWorker {
 public:
  explicit PsWorkerImpl(PsWorkerOptions options) : options_(std::move(options)) {}
  ~PsWorkerImpl() override {
    // leases_ loads until its thread ends, which is after the client's end.
    if (exchange_ != nullptr) exchange_->UseClient(nullptr);
    if (replica_ != nullptr) replica_->Detach();  // Its gradient sinks use the exchange.
  }

  absl::Status Build();
  absl::Status Run(const PsWorkerPeers& peers) override;
  bool has_trained() const override { return has_trained_; }

 private:
  class WorkerThread;

  absl::Status MakeSchedules(int64_t global_batch);
  // For PsLoopContext::begin.
  absl::StatusOr<int64_t> Begin(int64_t global_batch);
  absl::Status Connect();     // Makes the lease client.
  absl::Status MakeClient();  // Makes the client of push and pull, again after each error.
  absl::StatusOr<push_pull::ClientView> NextView(uint64_t newer_than);
  bool Recover();
  // Runs the program's loop on its own thread.
  absl::Status Work();
  absl::Status WorkOnDevice();
  void StopWork(const absl::Status& why);
  void FinishWork();
  absl::Status RunToVerdict();
  // Returns the result once the work has ended with `outcome`, nullopt if the work must begin
  // again.
  std::optional<absl::Status> Ended(const absl::Status& outcome);
  absl::Status Join();
  // Returns an error once this membership is over: its end aborts the generation's communicators.
  absl::Status MembershipStatus() const {
    return generation_->replicas.empty() ? absl::OkStatus()
                                         : generation_->replicas.front()->status();
  }

  const Job& job() const { return options_.job; }
  // Returns the examples of a lease.
  int64_t BatchOf(int64_t global_batch) const {
    return (global_batch + options_.workers - 1) / options_.workers;
  }

  const PsWorkerOptions options_;
  push_pull::ParameterServerOptions servers_;
  std::unique_ptr<Replica> replica_;
  std::map<Split, data::DatasetPtr> datasets_;
  std::unique_ptr<ParameterExchange> exchange_;
  std::string digest_;
  PsWorkerPeers peers_;
  std::unique_ptr<LeaseClient> leases_;
  std::optional<Generation> generation_;
  std::atomic<int64_t> steps_ = 0;
  std::atomic<bool> abandoned_ = false;
  std::atomic<bool> has_trained_ = false;
  int64_t global_batch_ = 0;  // The batch size for which the replica's schedules were made.
  int64_t failed_at_ = -1;    // Value of steps_ when the work last had to begin again.
  MonotonicTime failing_since_;

  absl::Mutex mutex_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  // The working thread makes and drops it. Any thread may abort it.
  std::unique_ptr<push_pull::PushPullClient> client_ ABSL_GUARDED_BY(mutex_);
};

// ---- Building

absl::Status PsWorkerImpl::Build() {
  MUSTER_RETURN_IF_ERROR(CheckDevicesForServers(job().devices, options_.devices.size()));
  if (!job().global_batch_size && !job().per_replica_batch_size) {
    return ConfigurationError(
        "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
  }
  MUSTER_ASSIGN_OR_RETURN(servers_, push_pull::ParseParameterServer(job().parameter_server));
  MUSTER_ASSIGN_OR_RETURN(replica_,
                          Replica::Make(job(), options_.program, options_.devices.front()));
  MUSTER_RETURN_IF_ERROR(CheckForServers(*replica_));
  for (const auto& [split, declaration] : replica_->datasets()) {
    MUSTER_ASSIGN_OR_RETURN(datasets_[split], MakeDataset(*replica_, split));
    if (split == Split::kTrain && datasets_[split]->size() == 0)
      return ConfigurationError("the train dataset is empty");
  }
  MUSTER_ASSIGN_OR_RETURN(ServedVariables served, VariablesToServe(replica_.get()));
  push_pull::LayoutOptions layout;
  layout.servers = options_.servers;
  layout.partitioner = servers_.partitioner;
  layout.chunk_bytes = servers_.chunk_bytes;
  MUSTER_RETURN_IF_ERROR(push_pull::CheckSizes(served.specs, layout));
  digest_ = push_pull::DigestOf(served.specs, layout);
  push_pull::Layout laid = push_pull::MakeLayout(served.specs, layout);
  MUSTER_ASSIGN_OR_RETURN(
      exchange_, ParameterExchange::Make(*replica_, job(), std::move(served), std::move(laid)));
  replica_->set_embedding_store(exchange_.get());
  // The chief sends the run's own batch size. Errors must show before that.
  return Begin(job().global_batch_size.value_or(job().per_replica_batch_size.value_or(0) *
                                                options_.workers))
      .status();
}

absl::StatusOr<int64_t> PsWorkerImpl::Begin(int64_t global_batch) {
  if (global_batch < 1)
    return PeerLost(fmt::format("the chief leases batches of {} examples", global_batch));
  if (global_batch != global_batch_) MUSTER_RETURN_IF_ERROR(MakeSchedules(global_batch));
  global_batch_ = global_batch;
  return BatchOf(global_batch);
}

absl::Status PsWorkerImpl::MakeSchedules(int64_t global_batch) {
  const int64_t examples = datasets_.at(Split::kTrain)->size();
  const data::Sampler global = TrainSampler(job(), *replica_, examples, global_batch);
  const int64_t batch = BatchOf(global_batch);
  ScheduleContext schedule;
  schedule.steps_per_epoch = (global.examples_per_epoch() + batch - 1) / batch;
  if (schedule.steps_per_epoch == 0) {
    return ConfigurationError(
        fmt::format("the train dataset has {} examples, fewer than the global batch of {}, and "
                    "drop_remainder drops them",
                    examples, global_batch));
  }
  schedule.total_steps = TotalSteps(job(), schedule.steps_per_epoch);
  schedule.num_replicas = options_.workers;
  if (options_.workers > 1) {
    LogInfo(
        "a step is one worker's batch of {} examples: {} steps an epoch, where synchronous "
        "training makes {}; schedules count these steps",
        batch, schedule.steps_per_epoch, global.batches_per_epoch());
  }
  return replica_->Attach(exchange_->MakeSinks(), schedule);
}

// ---- Connections

absl::Status PsWorkerImpl::Connect() {
  LeaseClientOptions options;
  options.chief_address = options_.chief_address;
  options.channel = options_.channel;
  options.worker = options_.worker;
  options.incarnation = peers_.incarnation;
  options.digest = digest_;
  options.variables = exchange_->variables();
  options.patience = job().timeouts.rejoin;
  options.load = [this](const proto::Lease& lease) {
    return LoadLease(datasets_, PipelineOptionsOf(job()), lease, replica_.get(), exchange_.get());
  };
  if (options_.meter != nullptr)
    options.depth = options_.meter->InputQueue(SplitName(Split::kTrain));
  MUSTER_ASSIGN_OR_RETURN(leases_, LeaseClient::Make(std::move(options)));
  return absl::OkStatus();
}

absl::StatusOr<push_pull::ClientView> PsWorkerImpl::NextView(uint64_t newer_than) {
  bool abandon = false;
  auto view = leases_->NextView(newer_than, &abandon);
  if (abandon) abandoned_ = true;
  MUSTER_RETURN_IF_ERROR(view.status());
  return ViewOf(*view);
}

absl::Status PsWorkerImpl::MakeClient() {
  push_pull::ClientOptions options;
  options.worker = options_.worker;
  options.incarnation = peers_.incarnation;
  options.layout = exchange_->layout();
  options.digest = digest_;
  options.options = servers_;
  options.listener = peers_.listener;
  options.host_id = rpc::ThisHost().id;
  options.next_view = [this](uint64_t newer_than) { return NextView(newer_than); };
  options.parameters = exchange_->parameters();
  if (options_.meter != nullptr) {
    options.in_flight = options_.meter->chunks_in_flight();
    const auto& traffic = options_.meter->traffic();
    options.shared_memory = {traffic, &traffic->shared_memory};
  }
  abandoned_ = false;
  exchange_->UseClient(nullptr);
  std::unique_ptr<push_pull::PushPullClient> old;
  {
    absl::MutexLock lock(&mutex_);
    old = std::move(client_);
  }
  old.reset();
  MUSTER_ASSIGN_OR_RETURN(auto client, push_pull::PushPullClient::Make(std::move(options)));
  exchange_->UseClient(client.get());
  absl::MutexLock lock(&mutex_);
  if (!stopped_.ok()) client->Abort(stopped_);
  client_ = std::move(client);
  return absl::OkStatus();
}

bool PsWorkerImpl::Recover() {
  if (!abandoned_) return false;
  LogInfo(
      "this worker discards its unfinished work: the chief had declared the worker lost, or the "
      "servers have started again");
  leases_->Forget();
  return MakeClient().ok();
}

// ---- Working

// Runs the program on its own thread. The membership uses another thread, so that the loss of the
// chief does not interrupt a step.
class PsWorkerImpl::WorkerThread {
 public:
  explicit WorkerThread(std::function<absl::Status()> work)
      : thread_([this, work = std::move(work), spans = SpanThread::Recorder()] {
          const SpanThread thread(spans, "main loop");
          absl::Status ended = work();
          absl::MutexLock lock(&mutex_);
          ended_ = std::move(ended);
          changed_.SignalAll();
        }) {}
  ~WorkerThread() { thread_.join(); }
  // Returns the work's result if it has ended within `limit`.
  std::optional<absl::Status> Wait(Duration limit) {
    absl::MutexLock lock(&mutex_);
    const MonotonicTime until = Clock::now() + limit;
    while (!ended_)
      if (changed_.WaitUntil(&mutex_, until)) break;
    return ended_;
  }

 private:
  absl::Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

absl::Status PsWorkerImpl::Work() {
  // OMP_NUM_THREADS, if set, limits a replica's threads.
  static const int allowed = at::get_num_threads();
  at::set_num_threads(std::clamp(AvailableCores() / std::max(1, options_.workers_on_host), 1,
                                 std::max(1, allowed)));
  LogInfo("worker on {}, {} intra-op threads", replica_->device().str(), at::get_num_threads());
  return CatchProgramErrors("training", [&] {
    const c10::DeviceGuard device(replica_->device());
    ThrowIfError(WorkOnDevice());
  });
}

absl::Status PsWorkerImpl::WorkOnDevice() {
  MUSTER_RETURN_IF_ERROR(MakeClient());
  PsLoopContext context{.job = job(),
                        .replica = replica_.get(),
                        .exchange = exchange_.get(),
                        .leases = leases_.get(),
                        .membership = peers_.membership,
                        .worker = options_.worker,
                        .workers = options_.workers,
                        .bounded = servers_.max_staleness.has_value(),
                        .train_examples = datasets_.at(Split::kTrain)->size(),
                        .begin = [this](int64_t global_batch) { return Begin(global_batch); },
                        .recover = [this] { return Recover(); },
                        .steps = &steps_,
                        .has_trained = &has_trained_,
                        .meter = options_.meter};
  return PsLoop(context).Run();
}

void PsWorkerImpl::StopWork(const absl::Status& why) {
  leases_->Stop(why);
  absl::MutexLock lock(&mutex_);
  stopped_ = why;
  if (client_ != nullptr) client_->Abort(why);
}

// The job has ended well, and this worker may not have received that with its leases. Nothing waits
// for the worker. Calls to a chief that has exited would wait for its successor.
void PsWorkerImpl::FinishWork() {
  leases_->Finish();
  const absl::Status done = absl::CancelledError("the job is done");
  absl::MutexLock lock(&mutex_);
  stopped_ = done;
  if (client_ != nullptr) client_->Abort(done);
}

absl::Status PsWorkerImpl::Join() {
  generation_.reset();  // Nothing of the previous generation may remain.
  auto generation = peers_.membership->NextGeneration(steps_);
  MUSTER_RETURN_IF_ERROR(generation.status());
  generation_ = *std::move(generation);
  return absl::OkStatus();
}

std::optional<absl::Status> PsWorkerImpl::Ended(const absl::Status& outcome) {
  Membership* const membership = peers_.membership;
  if (IsProcessFault(outcome)) return outcome;  // This process ends, but the job continues.
  if (outcome.ok()) {
    absl::Status verdict = membership->Finish(steps_, outcome);
    // The chief was lost meanwhile, so this reports the same to its successor.
    while (!verdict.ok() && !membership->JobEnded()) {
      const absl::Status joined = Join();
      if (!joined.ok()) return joined;
      if (generation_->job_done) return absl::OkStatus();
      verdict = membership->Finish(steps_, outcome);
    }
    return verdict;
  }
  // A chief that gives no work for timeouts.rejoin is treated in the same way.
  if (ExitCodeOf(outcome) != ExitCode::kRetryable || absl::IsDeadlineExceeded(outcome)) {
    membership->ReportFailure(outcome);
    return outcome;
  }
  const absl::Status why = membership->Explain(outcome);
  if (membership->JobEnded()) return why;
  // The chief or its servers have lost this worker, so others have its current work by now.
  const MonotonicTime now = Clock::now();
  if (steps_ != failed_at_) failing_since_ = now;
  failed_at_ = steps_;
  if (now - failing_since_ >= job().timeouts.rejoin) {
    membership->ReportFailure(outcome);
    return outcome;
  }
  LogWarning("{}; this worker restarts its work", Message(outcome));
  leases_->Forget();
  return std::nullopt;
}

absl::Status PsWorkerImpl::Run(const PsWorkerPeers& peers) {
  peers_ = peers;
  const absl::Status verdict = RunToVerdict();
  // From here on nothing may ask for a view or use objects of the caller.
  if (leases_ != nullptr) leases_->Stop(absl::CancelledError("the worker has finished"));
  replica_->Detach();
  exchange_->UseClient(nullptr);  // A lease and its rows may still be on their way.
  std::unique_ptr<push_pull::PushPullClient> client;
  {
    absl::MutexLock lock(&mutex_);
    client = std::move(client_);
  }
  return verdict;
}

absl::Status PsWorkerImpl::RunToVerdict() {
  MUSTER_RETURN_IF_ERROR(Connect());
  absl::Status status = Join();
  while (status.ok()) {
    if (generation_->job_done) return absl::OkStatus();
    WorkerThread computation([this] { return Work(); });
    std::optional<absl::Status> ended;
    bool done = false;  // The job is done without an error.
    while (!(ended = computation.Wait(kTick))) {
      if (!status.ok() || done) continue;
      if (MembershipStatus().ok() && !peers_.membership->JobEnded()) continue;
      status = peers_.membership->Explain(MembershipStatus());
      done = peers_.membership->JobEnded();
      if (!done) {
        status = Join();
        done = status.ok() && generation_->job_done;
      }
      if (!status.ok()) {
        StopWork(status);
      } else if (done) {
        FinishWork();
      }
    }
    if (!status.ok() || done) return status;
    if (auto verdict = Ended(*ended)) return *verdict;
    if (!MembershipStatus().ok()) status = Join();
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsWorker>> PsWorker::Make(PsWorkerOptions options) {
  auto worker = std::make_unique<PsWorkerImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(worker->Build());
  return worker;
}

}  // namespace muster::worker
