// RunWatch records the progress of a job for users: the current numbers (such as step and loss),
// the last events, and the curves of the loss, the examples per second and the step time. The
// chief's process has one RunWatch. Each step costs one lock without contention and a few
// additions. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/status/curves.h"
#include "common/base/clock.h"
#include "common/cluster/task.h"
#include "common/telemetry/progress.h"
#include "common/train/observer.h"
#include "proto/coordinator.pb.h"

namespace muster::chief {

struct RunWatchOptions {
  std::string program, strategy, model_dir;
};

class RunWatch final : public Observer {
 public:
  static constexpr size_t kMaxEvents = 100;

  explicit RunWatch(RunWatchOptions options);

  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnEvaluateProgress(const std::string& split, int64_t done, int64_t total) override;
  // Records metrics that the evaluator task has measured.
  void OnEvaluation(const std::map<std::string, double>& metrics);
  // Records a complete checkpoint. `path` is its folder.
  void OnCheckpoint(int64_t step, const std::string& path);
  // Records an event at the current time. Ignores the age in `event`. If the step in `event` is -1,
  // records the current step, if any. Does not block.
  void OnEvent(proto::RunEvent event);

  // Called for CoordinatorOptions::on_straggler. Records that `task` is now a straggler or is no
  // longer a straggler. A straggler is a task for which the other tasks wait in each step.
  void OnStraggler(const TaskId& task, bool straggler);

  // Sets the progress and the events in `reply`.
  void Describe(proto::StatusReply* reply) const;
  // Returns the events with numbers above `*last`, but at most the last kMaxEvents events. Sets
  // `*last` to the number of the newest event. Events are numbered from 1.
  std::vector<proto::RunEvent> EventsSince(uint64_t* last) const;
  Curves::News CurvesSince(CurveCursor* cursor) const;

 private:
  struct Event {
    proto::RunEvent event;
    MonotonicTime at;
  };
  void KeepLocked(proto::RunEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static proto::RunEvent Aged(const Event& event, MonotonicTime now);

  mutable absl::Mutex mu_;
  proto::RunProgress progress_ ABSL_GUARDED_BY(mu_);
  MonotonicTime saved_at_ ABSL_GUARDED_BY(mu_);
  RateMeter rate_ ABSL_GUARDED_BY(mu_);
  Curves curves_ ABSL_GUARDED_BY(mu_);
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  uint64_t newest_ ABSL_GUARDED_BY(mu_) = 0;  // The number of the last event.
};

}  // namespace muster::chief
