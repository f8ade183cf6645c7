#include "common/telemetry/task_meter.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace muster {
namespace {

// TaskStats::local_step_seconds is the median over this many steps. A single slow step, for example
// because of a slow disk, does not change it.
constexpr size_t kLocalSteps = 5;
constexpr double kWindowSeconds = 5;

// Returns true if time in this phase delays members that wait in the step's reductions. Passes and
// saves happen between steps, where all members wait.
bool IsLocal(Phase phase) {
  return phase == Phase::kData || phase == Phase::kForward || phase == Phase::kUpdate;
}

}  // namespace

TaskMeter::TaskMeter(MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  phase_since_ = last_step_at_ = now;
  totals_.mutable_phase_seconds()->Resize(kNumPhases, 0);
}

void TaskMeter::EnterPhase(Phase phase, int64_t step, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  const double seconds = Seconds(now - phase_since_);
  double& total = *totals_.mutable_phase_seconds()->Mutable(static_cast<int>(phase_));
  total += seconds;
  if (IsLocal(phase_)) local_seconds_ += seconds;
  if (phase == Phase::kReduce && step != last_waited_step_) {
    local_steps_.push_back(std::exchange(local_seconds_, 0));
    if (local_steps_.size() > kLocalSteps) local_steps_.pop_front();
    last_waited_step_ = step;
  }
  if (phase == Phase::kForming) {
    local_seconds_ = 0;
    local_steps_.clear();
  }
  phase_ = phase;
  phase_since_ = now;
  step_ = step;
}

void TaskMeter::AddStep(double wait_seconds, double input_seconds, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  totals_.set_steps(totals_.steps() + 1);
  totals_.set_peer_wait_seconds(totals_.peer_wait_seconds() + wait_seconds);
  totals_.set_input_wait_seconds(totals_.input_wait_seconds() + input_seconds);
  const int64_t examples = examples_.load(std::memory_order_relaxed);
  const double seconds = Seconds(now - std::exchange(last_step_at_, now));
  if (totals_.steps() > 1) {
    waits_.Add(examples - examples_at_step_, seconds, wait_seconds);
    inputs_.Add(0, seconds, input_seconds);
  }
  examples_at_step_ = examples;
}

void TaskMeter::AddExamples(int64_t examples) {
  examples_.fetch_add(examples, std::memory_order_relaxed);
}

void TaskMeter::AddUpdates(int64_t steps, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  totals_.set_steps(totals_.steps() + steps);
  const double seconds = Seconds(now - std::exchange(last_step_at_, now));
  // RateMeter counts calls.
  for (int64_t i = 0; i < steps; ++i) waits_.Add(0, seconds / static_cast<double>(steps), 0);
}

void TaskMeter::AddStaleness(double updates) {
  constexpr double kNewest = 0.1;
  absl::MutexLock lock(&mu_);
  staleness_ += kNewest * (updates - staleness_);
}

void TaskMeter::AddGeneration() {
  absl::MutexLock lock(&mu_);
  totals_.set_generations(totals_.generations() + 1);
}

void TaskMeter::AddCheckpoint() {
  absl::MutexLock lock(&mu_);
  totals_.set_checkpoints(totals_.checkpoints() + 1);
}

void TaskMeter::SetRestarts(int64_t restarts) {
  absl::MutexLock lock(&mu_);
  totals_.set_restarts(restarts);
}

void TaskMeter::SetPushLosses(const proto::PushLosses& losses) {
  absl::MutexLock lock(&mu_);
  *totals_.mutable_push_losses() = losses;
}

void TaskMeter::SetSystem(SystemStats system) {
  absl::MutexLock lock(&mu_);
  system_ = std::move(system);
}

void TaskMeter::SetStraggler(const std::string& member, bool straggler) {
  absl::MutexLock lock(&mu_);
  stragglers_[member] = straggler;
}

std::shared_ptr<data::QueueDepth> TaskMeter::InputQueue(const std::string& dataset) {
  absl::MutexLock lock(&mu_);
  std::shared_ptr<data::QueueDepth>& depth = input_queues_[dataset];
  if (depth == nullptr) depth = std::make_shared<data::QueueDepth>();
  return depth;
}

double TaskMeter::StaleAfterLocked() const {
  const double rate = waits_.steps_per_second();
  return kWindowSeconds + (rate > 0 ? 3 / rate : 0);
}

double TaskMeter::LocalStepSecondsLocked() const {
  if (local_steps_.empty()) return 0;
  std::vector<double> sorted(local_steps_.begin(), local_steps_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

proto::TaskStats TaskMeter::Stats(MonotonicTime now) const {
  absl::MutexLock lock(&mu_);
  proto::TaskStats stats = totals_;
  *stats.mutable_phase_seconds()->Mutable(static_cast<int>(phase_)) += Seconds(now - phase_since_);
  stats.set_examples(examples_.load(std::memory_order_relaxed));
  stats.set_bytes_sent(traffic_->tcp.sent.load(std::memory_order_relaxed));
  stats.set_bytes_received(traffic_->tcp.received.load(std::memory_order_relaxed));
  stats.set_shared_memory_bytes_sent(traffic_->shared_memory.sent.load(std::memory_order_relaxed));
  stats.set_shared_memory_bytes_received(
      traffic_->shared_memory.received.load(std::memory_order_relaxed));
  stats.set_nccl_bytes_sent(traffic_->nccl.sent.load(std::memory_order_relaxed));
  stats.set_nccl_bytes_received(traffic_->nccl.received.load(std::memory_order_relaxed));
  const bool moving = Seconds(now - last_step_at_) < StaleAfterLocked();
  stats.set_steps_per_second(moving ? waits_.steps_per_second() : 0);
  stats.set_examples_per_second(moving ? waits_.examples_per_second() : 0);
  stats.set_wait_share(moving ? waits_.wait_share() : -1);
  stats.set_input_share(moving ? inputs_.wait_share() : -1);
  stats.set_local_step_seconds(moving ? LocalStepSecondsLocked() : 0);
  stats.set_staleness(staleness_);
  stats.set_chunks_in_flight(chunks_in_flight_->load(std::memory_order_relaxed));
  for (const auto& [dataset, depth] : input_queues_) {
    const int64_t capacity = depth->capacity.load(std::memory_order_relaxed);
    if (capacity <= 0) continue;
    proto::InputQueue& queue = *stats.add_input_queues();
    queue.set_dataset(dataset);
    queue.set_ready(depth->ready.load(std::memory_order_relaxed));
    queue.set_capacity(capacity);
  }
  AddTo(system_, &stats);
  return stats;
}

std::pair<Phase, int64_t> TaskMeter::phase() const {
  absl::MutexLock lock(&mu_);
  return {phase_, step_};
}

std::map<std::string, bool> TaskMeter::stragglers() const {
  absl::MutexLock lock(&mu_);
  return stragglers_;
}

}  // namespace muster
