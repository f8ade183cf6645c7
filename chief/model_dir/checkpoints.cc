#include "chief/model_dir/checkpoints.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/checkpoint/manifest.h"
#include "common/flight/spans.h"
#include "common/job/metric_direction.h"

namespace muster::chief {
namespace {

// The thread has a lower priority than the replicas, so that it does not delay training.
constexpr int kNiceness = 5;
// At most one log line about skipped saves in this time.
constexpr Duration kDropLineInterval = std::chrono::minutes(1);
// Time for a write that is still in progress when everything else has ended.
constexpr Duration kLastMoment = std::chrono::seconds(1);

std::string RateText(size_t bytes, double seconds) {
  const auto size = static_cast<double>(bytes);
  // A rate would say nothing about so few bytes.
  if (bytes < 100000) return fmt::format("{} bytes in {:.2f} s", bytes, seconds);
  return fmt::format(
      "{} in {:.2f} s ({:.1f} MB/s)",
      bytes < 1000000 ? fmt::format("{:.1f} kB", size / 1e3) : fmt::format("{:.1f} MB", size / 1e6),
      seconds, seconds > 0 ? size / 1e6 / seconds : 0);
}

// A step that may be the best: its value of checkpoint.best and all other metrics measured with it.
struct Candidate {
  int64_t step = 0;
  double value = 0;
  std::map<std::string, double> metrics;
};

// Returns false if callbacks have put back the weights of another step. The metrics of this step
// are then not of the checkpoint's weights.
bool HasOwnWeights(const checkpoint::TrainingState& state) {
  const auto& record = state.extras.callbacks;
  return !record || !record->ended || record->weights_of == 0 || record->weights_of == state.step;
}

struct Task {
  std::optional<checkpoint::Snapshot> snapshot;
  bool final = false;
  bool must = false;    // The last save of the job, or the save at a stop.
  Candidate candidate;  // Used if `snapshot` is empty.
};

// Shared by the thread and Checkpoints. The thread may outlive Checkpoints.
struct Shared {
  explicit Shared(CheckpointsOptions o) : options(std::move(o)) {}

  void Run();
  void SaveLocked(Task task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void MarkLocked(const Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordBestLocked(const checkpoint::BestMark& best,
                        const std::map<std::string, double>& metrics)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The checkpoint of that step has other weights than those that were measured.
  void ForgetMeasuredLocked(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // `must` is true if training does not continue after this save.
  void FailedLocked(const absl::Status& status, bool must) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return tasks.empty() && !busy; }
  bool NotSaving() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return !saving; }
  // Returns whether the condition became true within `limit`.
  bool WaitLocked(bool (Shared::*condition)() const, Duration limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return !tasks.empty() || exiting; }

  const CheckpointsOptions options;
  const std::shared_ptr<SpanRecorder> spans = SpanThread::Recorder();
  std::shared_ptr<checkpoint::Store> store;  // Set before the thread starts.

  mutable absl::Mutex mu;
  CondVar done;  // Signalled when one of `tasks` is done.
  std::deque<Task> tasks ABSL_GUARDED_BY(mu);
  // Value of the candidate that is being marked.
  std::optional<double> marking ABSL_GUARDED_BY(mu);
  bool busy ABSL_GUARDED_BY(mu) = false;
  bool saving ABSL_GUARDED_BY(mu) = false;  // A save is in `tasks` or being written.
  int64_t saving_step ABSL_GUARDED_BY(mu) = -1;
  bool saving_own ABSL_GUARDED_BY(mu) = true;  // The save has the step's own weights.
  // The values that decide which checkpoint is the best, for each checkpoint that exists. Keyed by
  // step.
  std::map<int64_t, Candidate> measured ABSL_GUARDED_BY(mu);
  bool exiting ABSL_GUARDED_BY(mu) = false;
  bool left ABSL_GUARDED_BY(mu) = false;  // No caller reads results any more.
  bool failing ABSL_GUARDED_BY(mu) = false;
  absl::Status last ABSL_GUARDED_BY(mu);  // Result of the last save.
  // Why the last save, or that of a stop, was not started.
  absl::Status missed ABSL_GUARDED_BY(mu);
  CheckpointRecord record ABSL_GUARDED_BY(mu);
};

void Shared::Run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
  const SpanThread thread(spans, "checkpoints");
  absl::MutexLock lock(&mu);
  while (true) {
    mu.Await(absl::Condition(this, &Shared::HasWork));
    if (tasks.empty()) return;
    Task task = std::move(tasks.front());
    tasks.pop_front();
    busy = true;
    if (task.snapshot) {
      SaveLocked(std::move(task));
      saving = false;
    } else {
      MarkLocked(task);
    }
    busy = false;
    done.SignalAll();
  }
}

bool Shared::WaitLocked(bool (Shared::*condition)() const, Duration limit) {
  const MonotonicTime until = Clock::now() + limit;
  while (!(this->*condition)())
    if (done.WaitUntil(&mu, until)) return (this->*condition)();
  return true;
}

void Shared::SaveLocked(Task task) {
  const int64_t step = task.snapshot->state.step;
  size_t bytes = task.snapshot->model.bytes() + task.snapshot->optimizer.bytes() +
                 task.snapshot->replica_buffers.bytes();
  int64_t rows = 0;
  for (const auto& file : task.snapshot->staged) {
    if (checkpoint::IsTablesFile(file->name()))
      rows += file->bytes();
    else
      bytes += static_cast<size_t>(file->bytes());
  }
  const bool own = HasOwnWeights(task.snapshot->state);
  mu.Unlock();
  const MonotonicTime start = Clock::now();
  const absl::StatusOr<std::string> path = [&] {
    const Span span("save");
    return store->Write(*task.snapshot);
  }();
  const double seconds = Seconds(Clock::now() - start) + task.snapshot->staged_seconds;
  task.snapshot.reset();
  mu.Lock();
  last = path.status();
  if (!path.ok()) return FailedLocked(path.status(), task.must);
  if (failing) LogInfo("checkpoints are written again");
  failing = false;
  ++record.written;
  const std::string name = checkpoint::CheckpointName(step);
  record.newest = "checkpoints/" + name;
  LogInfo("saved step {}: {}{}, {}", step, RateText(bytes, seconds),
          rows > 0 ? fmt::format(" and tables of {:.1f} MB", static_cast<double>(rows) / 1e6) : "",
          *path);
  if (!own) ForgetMeasuredLocked(step);
  if (!options.on_published || left) return;
  mu.Unlock();
  options.on_published(step, name, *path, task.final);
  mu.Lock();
}

void Shared::FailedLocked(const absl::Status& status, bool must) {
  ++record.failed;
  record.last_error = std::string(Message(status));
  // Other code logs that this chief was superseded, and that a required save has failed.
  if (!failing && !must && !absl::IsAborted(status))
    LogWarning("{}; training continues, and the next save that is due is tried", Message(status));
  failing = true;
}

void Shared::MarkLocked(const Task& task) {
  marking = task.candidate.value;
  mu.Unlock();
  const auto& [step, value, metrics] = task.candidate;
  const std::string& metric = options.checkpoint.best;
  const absl::StatusOr<bool> best =
      store->MarkBest(step, metric, value, LargerIsBetter(options.checkpoint));
  mu.Lock();
  marking.reset();
  if (!best.ok()) {
    LogWarning("{}", Message(best.status()));
  } else if (*best) {
    RecordBestLocked({step, metric, value}, metrics);
    LogInfo("the best checkpoint so far is step {} ({} {:.6g})", step, metric, value);
  }
  measured[step] = task.candidate;
  const std::vector<int64_t> held = store->steps();
  std::erase_if(measured, [&](const auto& one) {
    return !std::binary_search(held.begin(), held.end(), one.first);
  });
}

// The store has removed the mark, so another checkpoint becomes the best.
void Shared::ForgetMeasuredLocked(int64_t step) {
  measured.erase(step);
  if (record.best != "checkpoints/" + checkpoint::CheckpointName(step)) return;
  LogInfo("step {} is not the best checkpoint any more: it has the weights of another step now",
          step);
  record.best.clear();
  record.best_metric.clear();
  record.best_value = 0;
  record.best_metrics.clear();
  for (const auto& [other, candidate] : std::map(measured)) {
    Task task;
    task.candidate = candidate;
    MarkLocked(task);
  }
}

void Shared::RecordBestLocked(const checkpoint::BestMark& best,
                              const std::map<std::string, double>& metrics) {
  record.best = "checkpoints/" + checkpoint::CheckpointName(best.step);
  record.best_metric = best.metric;
  record.best_value = best.value;
  record.best_metrics = metrics;
}

class CheckpointsImpl final : public Checkpoints {
 public:
  explicit CheckpointsImpl(CheckpointsOptions options)
      : shared_(std::make_shared<Shared>(std::move(options))) {}
  ~CheckpointsImpl() override;

  void Open(std::shared_ptr<checkpoint::Store> store,
            const std::optional<checkpoint::BestMark>& best) override;
  std::shared_ptr<checkpoint::Store> store() const override { return shared_->store; }
  bool Wanted(const SaveMoment& moment) override;
  bool IsSaving() const override {
    absl::MutexLock lock(&shared_->mu);
    return shared_->saving;
  }
  absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& name) override {
    return shared_->store->StageFile(name);
  }
  void Save(checkpoint::Snapshot snapshot) override;
  void Failed(const absl::Status& why) override {
    absl::MutexLock lock(&shared_->mu);
    shared_->FailedLocked(why, next_must_);
  }
  absl::Status CheckOwner() const override {
    return shared_->options.check_owner ? shared_->options.check_owner() : absl::OkStatus();
  }
  absl::Status Drain() override;
  void OnStart(const StartReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void Evaluated(int64_t step, const std::map<std::string, double>& metrics) override;
  CheckpointRecord Record() const override;

 private:
  absl::Status NotInTime() const;
  // Returns the value of checkpoint.best, null if the metrics do not have it. Logs that once.
  const double* Monitored(const std::map<std::string, double>& metrics, std::string_view source);
  void Mark(Candidate candidate);
  bool Holds(int64_t step) const;   // The step's checkpoint is written or in `tasks`.
  bool IsBest(int64_t step) const;  // The step is better than all measured ones, and is not saved.
  bool Evaluates() const;           // An evaluator decides which checkpoint is the best.
  void LogDropped(int64_t step, bool writing);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
  // Used only by the training loop's thread.
  bool next_is_final_ = false, next_must_ = false, started_ = false;
  std::optional<Candidate> candidate_;  // The newest candidate, if its step has no checkpoint.
  // The candidate of the last step passed to Wanted, which Save saves.
  std::optional<Candidate> wanted_;
  std::optional<MonotonicTime> drop_logged_;
  int64_t dropped_step_ = -1;  // The last skipped step.
  int64_t dropped_since_ = 0;

  mutable absl::Mutex mu_;
  bool evaluated_ ABSL_GUARDED_BY(mu_) = false;
  bool missing_logged_ ABSL_GUARDED_BY(mu_) = false;
};

CheckpointsImpl::~CheckpointsImpl() {
  if (!thread_.joinable()) return;
  bool idle;
  {
    absl::MutexLock lock(&shared_->mu);
    shared_->exiting = shared_->left = true;
    idle = shared_->WaitLocked(&Shared::Idle, kLastMoment);
  }
  if (idle) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void CheckpointsImpl::Open(std::shared_ptr<checkpoint::Store> store,
                           const std::optional<checkpoint::BestMark>& best) {
  const std::vector<int64_t> steps = store->steps();
  {
    absl::MutexLock lock(&shared_->mu);
    if (!steps.empty())
      shared_->record.newest = "checkpoints/" + checkpoint::CheckpointName(steps.back());
    if (best) shared_->RecordBestLocked(*best, {});
  }
  shared_->store = std::move(store);
  thread_ = std::thread([shared = shared_] { shared->Run(); });
}

absl::Status CheckpointsImpl::NotInTime() const {
  return DeadlinePassed(
      fmt::format("a checkpoint was still being written after {:g} s (timeouts.phase.save)",
                  Seconds(shared_->options.deadline)));
}

void CheckpointsImpl::LogDropped(int64_t step, bool writing) {
  ++dropped_since_;
  const MonotonicTime now = Clock::now();
  if (drop_logged_ && now - *drop_logged_ < kDropLineInterval) return;
  LogWarning("step {} is not saved: {}{}", step,
             writing ? "the previous checkpoint is still being written"
                     : "the previous state is still being read from the servers",
             dropped_since_ > 1
                 ? fmt::format(" ({} saves are left out so far for this reason)", dropped_since_)
                 : "; every save that is due meanwhile is left out");
  drop_logged_ = now;
}

bool CheckpointsImpl::Wanted(const SaveMoment& moment) {
  if (shared_->store == nullptr) return false;
  const bool must = moment.last || moment.stopping;
  const bool best = !must && moment.validated && IsBest(moment.step);
  // A checkpoint saved before its validation is not written again.
  const bool due = SaveDue(shared_->options.checkpoint, moment) &&
                   (must || !moment.validated || !Holds(moment.step));
  if (!best && !due) return false;
  absl::MutexLock lock(&shared_->mu);
  if (!must && ((shared_->saving && !best) || moment.busy)) {
    if (std::exchange(dropped_step_, moment.step) == moment.step) return false;
    ++shared_->record.dropped;
    LogDropped(moment.step, shared_->saving);
    return false;
  }
  next_is_final_ = moment.last;
  next_must_ = must;
  wanted_ = best ? candidate_ : std::nullopt;
  if (!shared_->WaitLocked(&Shared::NotSaving, shared_->options.deadline)) {
    if (must) shared_->missed = NotInTime();
    shared_->FailedLocked(NotInTime(), must);
    return false;
  }
  return true;
}

void CheckpointsImpl::Save(checkpoint::Snapshot snapshot) {
  const CheckpointsOptions& options = shared_->options;
  snapshot.state.run_id = options.run_id();
  snapshot.state.job = options.job;
  snapshot.state.versions = options.versions;
  const int64_t step = snapshot.state.step;
  const bool own = HasOwnWeights(snapshot.state);
  {
    absl::MutexLock lock(&shared_->mu);
    shared_->saving = true;
    shared_->saving_step = step;
    shared_->saving_own = own;
    shared_->tasks.push_back({std::move(snapshot), next_is_final_, next_must_, {}});
  }
  // A later epoch may have ended since Wanted was called for that step.
  std::optional<Candidate>& of_step = wanted_ ? wanted_ : candidate_;
  if (of_step && of_step->step == step && own) Mark(*std::move(of_step));
  if (candidate_ && candidate_->step <= step) candidate_.reset();
  wanted_.reset();
}

absl::Status CheckpointsImpl::Drain() {
  absl::MutexLock lock(&shared_->mu);
  // The required state was not saved. This counts even if the write that was in the way succeeds.
  if (!shared_->missed.ok()) return shared_->missed;
  if (!shared_->WaitLocked(&Shared::Idle, shared_->options.deadline)) return NotInTime();
  return shared_->last;
}

const double* CheckpointsImpl::Monitored(const std::map<std::string, double>& metrics,
                                         std::string_view source) {
  const std::string& name = shared_->options.checkpoint.best;
  const auto metric = metrics.find(name);
  if (metric != metrics.end()) return &metric->second;
  absl::MutexLock lock(&mu_);
  if (missing_logged_) return nullptr;
  missing_logged_ = true;
  std::string known;
  for (const auto& [have, value] : metrics) known += (known.empty() ? "" : ", ") + have;
  LogWarning("no checkpoint is marked as the best: checkpoint.best is {}, and {} gives {}", name,
             source, known.empty() ? "no metric" : known);
  return nullptr;
}

void CheckpointsImpl::Mark(Candidate candidate) {
  absl::MutexLock lock(&shared_->mu);
  shared_->tasks.push_back({std::nullopt, false, false, std::move(candidate)});
}

bool CheckpointsImpl::Holds(int64_t step) const {
  {
    absl::MutexLock lock(&shared_->mu);
    if (shared_->saving && shared_->saving_step == step) return true;
  }
  const std::vector<int64_t> steps = shared_->store->steps();
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

bool CheckpointsImpl::IsBest(int64_t step) const {
  if (!candidate_ || candidate_->step != step) return false;
  const double value = candidate_->value;
  const CheckpointOptions& options = shared_->options.checkpoint;
  const bool larger = LargerIsBetter(options);
  const auto no_better = [&](double other) { return larger ? other >= value : other <= value; };
  {
    // Looks at the candidates in `tasks` first, because the store does not know them yet.
    absl::MutexLock lock(&shared_->mu);
    if (shared_->marking && no_better(*shared_->marking)) return false;
    for (const Task& task : shared_->tasks)
      if (!task.snapshot && no_better(task.candidate.value)) return false;
  }
  return shared_->store->IsBetter(step, options.best, value, larger);
}

bool CheckpointsImpl::Evaluates() const {
  absl::MutexLock lock(&mu_);
  return evaluated_;
}

// A lost chief may not have marked or saved its last checkpoint, so this chief does.
void CheckpointsImpl::OnStart(const StartReport& report) {
  if (std::exchange(started_, true)) return;
  // These passes were measured with other weights than those of the step's last checkpoint.
  if (report.weights_of != 0 && report.weights_of != report.start_step) return;
  for (const EpochReport& pass : report.passes) OnEpoch(pass);
  if (!report.train_metrics.empty()) {
    EpochReport epoch;
    epoch.split = "train";
    epoch.step = report.start_step;
    epoch.metrics = report.train_metrics;
    OnEpoch(epoch);
  }
}

void CheckpointsImpl::OnEpoch(const EpochReport& report) {
  const std::string split = shared_->options.checkpoint.best_of_training ? "train" : "validation";
  if (shared_->store == nullptr || report.split != split || Evaluates()) return;
  const double* value = Monitored(report.metrics, split == "train" ? "the epoch" : "validation");
  if (value == nullptr) return;
  Candidate candidate = {report.step, *value, report.metrics};
  if (Holds(report.step)) return Mark(std::move(candidate));
  candidate_ = std::move(candidate);
}

void CheckpointsImpl::Evaluated(int64_t step, const std::map<std::string, double>& metrics) {
  if (shared_->store == nullptr) return;
  {
    absl::MutexLock lock(&mu_);
    evaluated_ = true;
  }
  {
    // The metrics belong to an earlier checkpoint of this step. Another one with other weights is
    // being saved.
    absl::MutexLock lock(&shared_->mu);
    if (shared_->saving && shared_->saving_step == step && !shared_->saving_own) return;
  }
  if (const double* value = Monitored(metrics, "the evaluator")) Mark({step, *value, metrics});
}

CheckpointRecord CheckpointsImpl::Record() const {
  absl::MutexLock lock(&shared_->mu);
  return shared_->record;
}

}  // namespace

bool SaveDue(const CheckpointOptions& options, const SaveMoment& moment) {
  if (moment.last || moment.stopping || moment.requested) return true;
  if (options.every_steps && moment.step % *options.every_steps == 0) return true;
  if (!moment.epoch_end) return false;
  if (options.every_epochs) return (moment.epoch + 1) % *options.every_epochs == 0;
  return !options.every_steps;
}

bool LargerIsBetter(const CheckpointOptions& options) {
  if (options.best_mode != "auto") return options.best_mode == "max";
  return LargerIsBetterByName(options.best).value_or(true);
}

std::unique_ptr<Checkpoints> Checkpoints::Make(CheckpointsOptions options) {
  return std::make_unique<CheckpointsImpl>(std::move(options));
}

}  // namespace muster::chief
