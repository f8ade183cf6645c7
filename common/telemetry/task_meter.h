// TaskMeter collects the measurements of one task: steps, phases, waiting times, bytes, and the
// resource use of the process. Training loops update the TaskMeter. Heartbeats, /metrics and the
// chief's TensorBoard summaries read it. An update takes less than a microsecond. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/phase.h"
#include "common/data/queue_depth.h"
#include "common/telemetry/progress.h"
#include "common/telemetry/system_stats.h"
#include "common/transport/counted_stream.h"
#include "proto/telemetry.pb.h"

namespace muster {

class TaskMeter {
 public:
  explicit TaskMeter(MonotonicTime now = Clock::now());

  // Records that the first replica of this process enters `phase` (common/base/phase.h) of `step`.
  void EnterPhase(Phase phase, int64_t step, MonotonicTime now = Clock::now());
  // Counts a step that this process has applied. `wait_seconds` and `input_seconds` are the times
  // for which the first replica of this process waited for other tasks and for input.
  void AddStep(double wait_seconds, double input_seconds, MonotonicTime now = Clock::now());
  // Counts examples that a replica of this process has computed.
  void AddExamples(int64_t examples);
  // For a ps task: counts `steps` updates that this parameter server has applied.
  void AddUpdates(int64_t steps, MonotonicTime now = Clock::now());
  // For a worker with parameter servers: records the staleness of a push. The staleness is the
  // number of updates by other workers between the pull of the parameters and the push.
  void AddStaleness(double updates);
  // Counts a generation (a period of training with fixed members) that this process has joined.
  void AddGeneration();
  // Counts a complete checkpoint that this process has written.
  void AddCheckpoint();
  // Sets the number of restarts of this task by the launcher.
  void SetRestarts(int64_t restarts);
  // For the chief of a job with parameter servers: sets the numbers of the run's lost pushes and
  // updates.
  void SetPushLosses(const proto::PushLosses& losses);
  void SetSystem(SystemStats system);
  // For the chief: sets whether other members wait for `member` ("worker:1").
  void SetStraggler(const std::string& member, bool straggler);

  // Returns the queue counts of the input pipelines of `dataset`. `dataset` is "train", or a name
  // that the program has chosen. The pipelines write the counts, and Stats reads them.
  std::shared_ptr<data::QueueDepth> InputQueue(const std::string& dataset);
  // For a worker with parameter servers: returns the number of transfers without an answer. A
  // transfer pushes or pulls one chunk, a part of the variables. PushPullClient sets the number.
  // Pulls of embedding rows before a step (FetchRows) do not count.
  const std::shared_ptr<std::atomic<int64_t>>& chunks_in_flight() const {
    return chunks_in_flight_;
  }
  // Returns the counts of bytes that this process exchanges with other tasks. Connections and
  // communicators update these counts.
  const std::shared_ptr<transport::TaskTraffic>& traffic() const { return traffic_; }

  proto::TaskStats Stats(MonotonicTime now = Clock::now()) const;
  // Returns the current phase and step.
  std::pair<Phase, int64_t> phase() const;
  // Returns the last value that SetStraggler set for each member. Other members are absent.
  std::map<std::string, bool> stragglers() const;

 private:
  // Returns a time in seconds. If no step has ended for this time, Stats reports rates of 0.
  double StaleAfterLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double LocalStepSecondsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<transport::TaskTraffic> traffic_ =
      std::make_shared<transport::TaskTraffic>();
  const std::shared_ptr<std::atomic<int64_t>> chunks_in_flight_ =
      std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<int64_t> examples_ = 0;
  mutable absl::Mutex mu_;
  proto::TaskStats totals_ ABSL_GUARDED_BY(mu_);
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kStarting;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicTime phase_since_ ABSL_GUARDED_BY(mu_), last_step_at_ ABSL_GUARDED_BY(mu_);
  int64_t examples_at_step_ ABSL_GUARDED_BY(mu_) = 0;  // examples_ at last_step_at_.
  RateMeter waits_ ABSL_GUARDED_BY(mu_), inputs_ ABSL_GUARDED_BY(mu_);
  double staleness_ ABSL_GUARDED_BY(mu_) = 0;
  // The time in seconds since the last wait for other tasks. Excludes validation and test passes,
  // and checkpoints.
  double local_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_waited_step_ ABSL_GUARDED_BY(mu_) = -1;
  std::deque<double> local_steps_ ABSL_GUARDED_BY(mu_);  // local_seconds_ at recent waits.
  SystemStats system_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, bool> stragglers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<data::QueueDepth>> input_queues_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
