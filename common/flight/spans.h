// Spans of this process for `muster trace`: named intervals of the work of each thread. A
// SpanRecorder records them while a trace is requested. Otherwise a Span costs two loads and no
// lock.
//
// A SpanThread binds a thread to a recorder, and names its lane in the trace. Code on that thread
// passes SpanThread::Recorder() to the threads that it starts, so functions in between need no
// argument for the recorder. Spans of unbound threads are not recorded.
//
// SpanRecorder is thread-safe. SpanThread, Span and SpanLabel belong to one thread.
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
  int64_t step = 0;        // The step at the start of the span. 0: none yet.
  int64_t bytes = 0;       // The bytes of an operation. 0 if unknown.
  uint64_t sequence = 0;   // CollectiveCall::sequence. 0 for other spans.
  int32_t index = -1;      // For example the number of a bucket. -1 if there is none.
  bool truncated = false;  // The span was open when the recording stopped, which is its end.
};

// The spans of a window of steps, ordered by end time. Those that were open are the last.
struct SpanRecord {
  std::vector<std::string> lanes;
  std::vector<SpanEvent> spans;
  uint64_t lost_spans = 0;                // The number of oldest spans that did not fit.
  int64_t first_step = 0, last_step = 0;  // 0 if no step began.
};

class SpanRecorder {
 public:
  // The limit of recorded spans, which need a few megabytes.
  static constexpr size_t kCapacity = 32768;

  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  // Starts to record. Discards earlier spans.
  void Start();
  // Sets the window: spans of the steps `first_step` to `last_step`. REQUIRES: recording.
  void SetSteps(int64_t first_step, int64_t last_step);
  // Sets the window to the first `count` steps that begin after Start. For independent workers,
  // whose step numbers differ from those of others.
  void SetCount(int64_t count);
  // Blocks until the window has ended, until `until`, or until Wake is called.
  void WaitDone(MonotonicTime until);
  void Wake();
  // Stops recording and returns the spans of the window. Returns all spans if no step began since
  // Start.
  SpanRecord Stop();

  // Records that the process starts or continues this step.
  void EnterStep(int64_t step);
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Returns the index of the lane with this name. Adds the lane if it is new.
  int Lane(const std::string& name);
  // Announces a span that begins, so that Stop returns it even if it is still open. Its end is
  // ignored. Returns a number for Add, 0 unless recording.
  uint64_t Open(SpanEvent event);
  // Adds a span that has ended, and sets its step. `opened` is the result of Open, or 0. Has no
  // effect unless recording.
  void Add(SpanEvent event, uint64_t opened = 0);

 private:
  struct StepStart {
    int64_t step;
    MonotonicTime at;
  };
  // Returns the index in starts_ of the first step of the window, and of the first one after it.
  std::pair<size_t, size_t> WindowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsDoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the step at this time, 0 if none had begun.
  int64_t StepAtLocked(MonotonicTime at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> recording_ = false;
  std::atomic<int64_t> step_ = 0;
  absl::Mutex mu_;
  CondVar changed_;
  std::vector<std::string> lanes_ ABSL_GUARDED_BY(mu_);
  std::deque<SpanEvent> spans_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, SpanEvent> open_ ABSL_GUARDED_BY(mu_);
  uint64_t last_opened_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<StepStart> starts_ ABSL_GUARDED_BY(mu_);  // The steps that began since Start.
  uint64_t lost_ ABSL_GUARDED_BY(mu_) = 0;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  // Set by SetSteps or SetCount. Only one of the two is set.
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

// Labels the operations that this thread issues within the label's scope, for example with a
// bucket's number.
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

// Records its own scope as a span of the calling thread. `name` is a literal.
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
  uint64_t opened_ = 0;  // Of SpanRecorder::Open.
  bool range_ = false;   // An NVTX range is open.
};

// Records a span of the calling thread that began at `begin` and ends now.
void AddSpan(const char* name, MonotonicTime begin, int32_t index = -1, int64_t bytes = 0);
// Calls EnterStep of the calling thread's recorder, if it has one.
void EnterSpanStep(int64_t step);

// Also makes an NVTX range for each later Span, for NVIDIA's profilers. Has no effect in a build
// without CUDA. Called once, before threads are started.
void UseNvtx();

}  // namespace muster
