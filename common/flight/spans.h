// Spans of this process for `muster trace`: what each thread did from when until when. A
// SpanRecorder keeps them while somebody asks for a trace. Otherwise a Span costs two loads and no
// lock.
//
// A thread that has spans is bound to a recorder by a SpanThread, which also names its lane in the
// trace. Threads that it starts inherit the recorder through SpanThread::Recorder(). Code in
// between needs no argument for it, and spans of unbound threads are not recorded.
//
// SpanRecorder is thread-safe. SpanThread, Span and SpanLabel belong to one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/wait.h"

namespace muster {

struct SpanEvent {
  const char* name = nullptr;  // A literal, such as "backward".
  int lane = 0;                // Index into SpanRecord::lanes.
  MonotonicTime begin, end;
  int64_t step = 0;       // The step at the begin of the span. 0 if the process has had none.
  int64_t bytes = 0;      // Of an operation. 0 if unknown.
  uint64_t sequence = 0;  // Of a collective operation, see CollectiveCall. 0 for other spans.
  int32_t index = -1;     // For example the number of a bucket. -1 if there is none.
};

// The spans of a window of steps. The earliest end is first.
struct SpanRecord {
  std::vector<std::string> lanes;
  std::vector<SpanEvent> spans;
  uint64_t lost_spans = 0;                // Spans that did not fit, the oldest ones.
  int64_t first_step = 0, last_step = 0;  // 0 if no step began.
};

class SpanRecorder {
 public:
  // At most this many spans are kept, which is a few megabytes.
  static constexpr size_t kCapacity = 32768;

  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  // Begins to record. Discards what was recorded before.
  void Start();
  // Records until `last_step` has ended. Spans of earlier steps than `first_step` are left out.
  void SetSteps(int64_t first_step, int64_t last_step);
  // Does the same for the `count` steps that begin next or began since Start, whatever their
  // numbers. For workers whose steps are not those of others.
  void SetCount(int64_t count);
  // Blocks until the steps have ended or until `until`. Returns early after Wake.
  void WaitDone(MonotonicTime until);
  void Wake();
  // Ends the recording and returns its spans.
  SpanRecord Stop();

  // Says that the process begins this step, or goes on with it.
  void EnterStep(int64_t step);
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Returns the number of a lane. Equal names have one number.
  int Lane(const std::string& name);
  // Sets the step of the event. Has no effect unless recording.
  void Add(SpanEvent event);

 private:
  struct StepStart {
    int64_t step;
    MonotonicTime at;
  };
  // Returns the index in starts_ of the first step of the window, and of the first one after it.
  std::pair<size_t, size_t> WindowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsDoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> recording_ = false;
  std::atomic<int64_t> step_ = 0;
  absl::Mutex mu_;
  CondVar changed_;
  std::vector<std::string> lanes_ ABSL_GUARDED_BY(mu_);
  std::deque<SpanEvent> spans_ ABSL_GUARDED_BY(mu_);
  std::deque<StepStart> starts_ ABSL_GUARDED_BY(mu_);  // Of the steps that began since Start.
  uint64_t lost_ ABSL_GUARDED_BY(mu_) = 0;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  // Either the steps or their count is set. Neither is until SetSteps or SetCount.
  int64_t first_step_ ABSL_GUARDED_BY(mu_) = 0, last_step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

// Binds the calling thread to a recorder and a lane until the end of its scope. `recorder` may be
// null: spans of the thread are then not recorded.
class SpanThread {
 public:
  SpanThread(std::shared_ptr<SpanRecorder> recorder, const std::string& lane);
  ~SpanThread();
  SpanThread(const SpanThread&) = delete;
  SpanThread& operator=(const SpanThread&) = delete;

  // Returns the recorder of the calling thread, or null.
  static const std::shared_ptr<SpanRecorder>& Recorder();

 private:
  std::shared_ptr<SpanRecorder> outer_;
  int outer_lane_;
};

// Numbers the operations that this thread issues meanwhile, for example with a bucket's number.
class SpanLabel {
 public:
  SpanLabel(const char* name, int32_t index);
  ~SpanLabel();
  SpanLabel(const SpanLabel&) = delete;
  SpanLabel& operator=(const SpanLabel&) = delete;
  // Returns the name of the calling thread's label, null if it has none.
  static const char* Name();
  static int32_t Index();
};

// One span of the calling thread: its scope. `name` is a literal.
class Span {
 public:
  explicit Span(const char* name, int32_t index = -1);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* const name_;
  const int32_t index_;
  SpanRecorder* recorder_;  // Null if not recording.
  MonotonicTime begin_;
  bool range_ = false;  // An NVTX range is open.
};

// Records a span of the calling thread that began at `begin` and ends now.
void AddSpan(const char* name, MonotonicTime begin, int32_t index = -1, int64_t bytes = 0);
// Says that the calling thread begins a step.
void EnterSpanStep(int64_t step);

// Makes an NVTX range of each later Span, for NVIDIA's profilers. Has no effect in a build without
// CUDA. Called once, before threads are started.
void UseNvtx();

}  // namespace muster
