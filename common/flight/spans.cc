#include "common/flight/spans.h"

#include <algorithm>
#include <utility>

#include "common/flight/nvtx.h"

namespace muster {
namespace {

struct ThreadState {
  std::shared_ptr<SpanRecorder> recorder;
  int lane = 0;
  const char* label = nullptr;
  int32_t label_index = -1;
};

ThreadState& ThisThread() {
  thread_local ThreadState state;
  return state;
}

std::atomic<bool> use_nvtx = false;

}  // namespace

void SpanRecorder::Start() {
  absl::MutexLock lock(&mu_);
  spans_.clear();
  open_.clear();
  starts_.clear();
  lost_ = 0;
  first_step_ = last_step_ = count_ = 0;
  woken_ = false;
  // The current step, which has already begun. No window includes it.
  starts_.push_back({step(), MonotonicTime::min()});
  recording_.store(true, std::memory_order_relaxed);
}

void SpanRecorder::SetSteps(int64_t first_step, int64_t last_step) {
  absl::MutexLock lock(&mu_);
  first_step_ = first_step;
  last_step_ = last_step;
  changed_.SignalAll();
}

void SpanRecorder::SetCount(int64_t count) {
  absl::MutexLock lock(&mu_);
  count_ = count;
  changed_.SignalAll();
}

std::pair<size_t, size_t> SpanRecorder::WindowLocked() const {
  size_t first = 0;
  while (first < starts_.size() && starts_[first].at == MonotonicTime::min()) ++first;
  if (count_ > 0) return {first, std::min<size_t>(first + count_, starts_.size())};
  while (first < starts_.size() && starts_[first].step < first_step_) ++first;
  size_t end = first;
  while (end < starts_.size() && (last_step_ == 0 || starts_[end].step <= last_step_)) ++end;
  return {first, end};
}

bool SpanRecorder::IsDoneLocked() const {
  return (count_ > 0 || last_step_ > 0) && WindowLocked().second < starts_.size();
}

void SpanRecorder::WaitDone(MonotonicTime until) {
  absl::MutexLock lock(&mu_);
  while (!IsDoneLocked() && !woken_)
    if (changed_.WaitUntil(&mu_, until)) return;
}

void SpanRecorder::Wake() {
  absl::MutexLock lock(&mu_);
  woken_ = true;
  changed_.SignalAll();
}

SpanRecord SpanRecorder::Stop() {
  absl::MutexLock lock(&mu_);
  recording_.store(false, std::memory_order_relaxed);
  SpanRecord record;
  record.lanes = lanes_;
  record.lost_spans = lost_;
  const auto [first, end] = WindowLocked();
  // A process without steps, such as a parameter server, returns all spans.
  MonotonicTime from = MonotonicTime::min(), to = MonotonicTime::max();
  if (first < end) {
    record.first_step = starts_[first].step;
    record.last_step = starts_[end - 1].step;
    from = starts_[first].at;
  }
  if (end < starts_.size()) to = starts_[end].at;
  for (const SpanEvent& span : spans_)
    if (span.end > from && span.begin < to) record.spans.push_back(span);
  // All end at the same time, so that those of a thread nest.
  const MonotonicTime now = Clock::now();
  for (auto& [number, span] : open_) {
    if (span.begin >= to) continue;
    span.end = now;
    span.truncated = true;
    record.spans.push_back(span);
  }
  // Steps began, but none of the window.
  if (first == end && starts_.size() > 1) record.spans.clear();
  spans_.clear();
  open_.clear();
  starts_.clear();
  return record;
}

void SpanRecorder::EnterStep(int64_t step) {
  if (step_.exchange(step, std::memory_order_relaxed) == step || !recording()) return;
  absl::MutexLock lock(&mu_);
  starts_.push_back({step, Clock::now()});
  // A window has far fewer steps, and begins after the latest one that any process has begun.
  if (starts_.size() > kCapacity) starts_.pop_front();
  if (IsDoneLocked()) changed_.SignalAll();
}

int SpanRecorder::Lane(const std::string& name) {
  absl::MutexLock lock(&mu_);
  const auto found = std::find(lanes_.begin(), lanes_.end(), name);
  if (found != lanes_.end()) return static_cast<int>(found - lanes_.begin());
  lanes_.push_back(name);
  return static_cast<int>(lanes_.size()) - 1;
}

// A span may end in a later step, and may have begun on another thread.
int64_t SpanRecorder::StepAtLocked(MonotonicTime at) const {
  auto start = starts_.rbegin();
  while (start != starts_.rend() && start->at > at) ++start;
  return start == starts_.rend() ? 0 : start->step;
}

uint64_t SpanRecorder::Open(SpanEvent event) {
  if (!recording()) return 0;
  absl::MutexLock lock(&mu_);
  event.step = StepAtLocked(event.begin);
  open_.emplace(++last_opened_, event);
  return last_opened_;
}

void SpanRecorder::Add(SpanEvent event, uint64_t opened) {
  if (!recording()) return;
  absl::MutexLock lock(&mu_);
  open_.erase(opened);
  event.step = StepAtLocked(event.begin);
  if (spans_.size() == kCapacity) {
    spans_.pop_front();
    ++lost_;
  }
  spans_.push_back(event);
}

// ---- The calling thread

SpanThread::SpanThread(std::shared_ptr<SpanRecorder> recorder, const std::string& lane)
    : outer_(std::move(ThisThread().recorder)), outer_lane_(ThisThread().lane) {
  ThreadState& state = ThisThread();
  state.lane = recorder == nullptr ? 0 : recorder->Lane(lane);
  state.recorder = std::move(recorder);
}

SpanThread::~SpanThread() {
  ThisThread().recorder = std::move(outer_);
  ThisThread().lane = outer_lane_;
}

const std::shared_ptr<SpanRecorder>& SpanThread::Recorder() { return ThisThread().recorder; }

SpanLabel::SpanLabel(const char* name, int32_t index) {
  ThisThread().label = name;
  ThisThread().label_index = index;
}
SpanLabel::~SpanLabel() {
  ThisThread().label = nullptr;
  ThisThread().label_index = -1;
}
const char* SpanLabel::Name() { return ThisThread().label; }
int32_t SpanLabel::Index() { return ThisThread().label_index; }

Span::Span(const char* name, int32_t index)
    : name_(name), index_(index), recorder_(ThisThread().recorder.get()) {
  if (recorder_ != nullptr && !recorder_->recording()) recorder_ = nullptr;
  if (recorder_ != nullptr) {
    begin_ = Clock::now();
    opened_ =
        recorder_->Open({.name = name, .lane = ThisThread().lane, .begin = begin_, .index = index});
  }
  if (use_nvtx.load(std::memory_order_relaxed)) {
    nvtx::Push(name);
    range_ = true;
  }
}

Span::~Span() {
  if (range_) nvtx::Pop();
  if (recorder_ == nullptr) return;
  recorder_->Add({.name = name_,
                  .lane = ThisThread().lane,
                  .begin = begin_,
                  .end = Clock::now(),
                  .index = index_},
                 opened_);
}

void AddSpan(const char* name, MonotonicTime begin, int32_t index, int64_t bytes) {
  const ThreadState& state = ThisThread();
  if (state.recorder == nullptr || !state.recorder->recording()) return;
  state.recorder->Add({.name = name,
                       .lane = state.lane,
                       .begin = begin,
                       .end = Clock::now(),
                       .bytes = bytes,
                       .index = index});
}

void EnterSpanStep(int64_t step) {
  if (SpanRecorder* recorder = ThisThread().recorder.get()) recorder->EnterStep(step);
}

void UseNvtx() { use_nvtx.store(nvtx::Available(), std::memory_order_relaxed); }

}  // namespace muster
