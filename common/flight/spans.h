// Records spans for `muster trace`. A span is a named interval of the work of a thread. A
// SpanRecorder records spans only while a trace is requested. At other times, a Span costs two
// loads from memory and takes no lock.
//
// A SpanThread binds the calling thread to a recorder and to a lane. A lane is a row of the trace.
// Spans of unbound threads are not recorded. A bound thread that starts a new thread passes
// SpanThread::Recorder() to the new thread. Functions therefore need no argument for the recorder.
//
// SpanRecorder is thread-safe. Only one thread may use a SpanThread, Span or SpanLabel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
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
  int64_t step = 0;        // The training step at the start of the span. 0: before the first step.
  int64_t bytes = 0;       // The number of bytes that an operation transfers. 0: unknown.
  uint64_t sequence = 0;   // CollectiveCall::sequence. 0: no collective operation.
  int32_t index = -1;      // A number shown with the name, such as a bucket's number. -1: none.
  bool truncated = false;  // True if the span was open at `end`, when the recording stopped.
};

// The spans of a window, which is a range of training steps. The spans are ordered by end time. The
// last spans are the spans that were open when the recording stopped.
struct SpanRecord {
  std::vector<std::string> lanes;
  std::vector<SpanEvent> spans;
  uint64_t lost_spans = 0;                // The number of old spans that newer spans replaced.
  int64_t first_step = 0, last_step = 0;  // 0 if no step of the window began.
};

class SpanRecorder {
 public:
  // The maximum number of spans. They need a few megabytes.
  static constexpr size_t kCapacity = 32768;

  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  // Starts to record. Discards earlier spans and the window.
  void Start();
  // Sets the window to the steps `first_step` to `last_step`. REQUIRES: recording().
  void SetSteps(int64_t first_step, int64_t last_step);
  // Sets the window to the first `count` steps that begin after Start. For the workers of a
  // parameter-server job, which count their steps separately.
  void SetCount(int64_t count);
  // Blocks until the first step after the window has begun. Returns earlier at the time `until`, or
  // when Wake is called.
  void WaitDone(MonotonicTime until);
  void Wake();
  // Stops recording and returns the spans of the window. If no step began since Start, returns all
  // spans.
  SpanRecord Stop();

  // Called when the process begins or continues `step`.
  void EnterStep(int64_t step);
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Returns the index of the lane with this name. Adds the lane if it is new.
  int Lane(const std::string& name);
  // Announces a span that begins, so that Stop returns the span even if it is still open. Ignores
  // `event.end`. Returns a number for Add, or 0 if recording() is false.
  uint64_t Open(SpanEvent event);
  // Adds a span that has ended, and sets its field `step`. `opened` is the result of Open for this
  // span, or 0. Has no effect if recording() is false.
  void Add(SpanEvent event, uint64_t opened = 0);

 private:
  struct StepStart {
    int64_t step;
    MonotonicTime at;
  };
  // Returns two indices in starts_: the first step of the window, and the first step after the
  // window.
  std::pair<size_t, size_t> WindowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsDoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the step in progress at the time `at`. Returns 0 if no step had begun.
  int64_t StepAtLocked(MonotonicTime at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> recording_ = false;
  std::atomic<int64_t> step_ = 0;
  absl::Mutex mu_;
  CondVar changed_;
  std::vector<std::string> lanes_ ABSL_GUARDED_BY(mu_);
  std::deque<SpanEvent> spans_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, SpanEvent> open_ ABSL_GUARDED_BY(mu_);  // Keyed by the result of Open.
  uint64_t last_opened_ ABSL_GUARDED_BY(mu_) = 0;
  // The step in progress at Start, and the steps that began since Start.
  std::deque<StepStart> starts_ ABSL_GUARDED_BY(mu_);
  uint64_t lost_ ABSL_GUARDED_BY(mu_) = 0;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  // The window. SetSteps sets first_step_ and last_step_. SetCount sets count_.
  int64_t first_step_ ABSL_GUARDED_BY(mu_) = 0, last_step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

// Binds the calling thread to a recorder and a lane, until the SpanThread is destroyed. If
// `recorder` is null, spans of the thread are not recorded.
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

// Gives a name and an index to each collective operation that the calling thread starts while the
// SpanLabel exists. An example is the name "reduce bucket" with the number of the bucket.
class SpanLabel {
 public:
  SpanLabel(const char* name, int32_t index);
  ~SpanLabel();
  SpanLabel(const SpanLabel&) = delete;
  SpanLabel& operator=(const SpanLabel&) = delete;
  // Return the name and the index of the calling thread's label. Return null and -1 if the thread
  // has no label.
  static const char* Name();
  static int32_t Index();
};

// Records a span of the calling thread, from the construction of this object to its destruction.
// `name` is a string literal.
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
  uint64_t opened_ = 0;  // The result of SpanRecorder::Open.
  bool range_ = false;   // True while this object has an NVTX range (nvtx.h).
};

// Records a span of the calling thread that began at `begin` and ends now.
void AddSpan(const char* name, MonotonicTime begin, int32_t index = -1, int64_t bytes = 0);
// Calls EnterStep of the calling thread's recorder, if the thread has a recorder.
void EnterSpanStep(int64_t step);

// Makes each later Span also an NVTX range for NVIDIA's profilers. Has no effect in a build without
// CUDA. Called once, before threads are started.
void UseNvtx();

}  // namespace muster
