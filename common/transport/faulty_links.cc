#include "common/transport/faulty_links.h"

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"

namespace muster::transport {

struct FaultyLinks::State {
  // A descriptor that becomes readable when the freeze ends. Waits poll it instead of a frozen
  // socket.
  const int thaw = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  std::atomic<Duration::rep> frozen_until = 0;  // A time in ticks of Clock.
  absl::Mutex mutex;
  std::set<ByteStream*> streams ABSL_GUARDED_BY(mutex);

  ~State() {
    if (thaw >= 0) close(thaw);
  }
  bool frozen() const {
    const Duration::rep until = frozen_until.load(std::memory_order_relaxed);
    return until != 0 && Clock::now().time_since_epoch().count() < until;
  }
};

namespace {

class FaultyStream final : public ByteStream {
 public:
  FaultyStream(std::unique_ptr<ByteStream> stream, std::shared_ptr<FaultyLinks::State> state)
      : stream_(std::move(stream)), state_(std::move(state)) {
    absl::MutexLock lock(&state_->mutex);
    state_->streams.insert(stream_.get());
  }
  ~FaultyStream() override {
    absl::MutexLock lock(&state_->mutex);
    state_->streams.erase(stream_.get());
  }
  absl::StatusOr<size_t> Read(std::span<const iovec> into) override {
    if (state_->frozen()) return size_t{0};
    return stream_->Read(into);
  }
  absl::StatusOr<size_t> Write(std::span<const iovec> from) override {
    // The reply to a hello is the first write. It is not frozen, because its sender does not retry.
    if (written_ && state_->frozen()) return size_t{0};
    written_ = true;
    return stream_->Write(from);
  }
  // A wait that begins during a freeze lasts until its end, and finds nothing ready.
  short PollEvents(bool want_read, bool want_write) const override {
    const short events = stream_->PollEvents(want_read, want_write);
    waits_for_thaw_ = events != 0 && state_->frozen();
    return waits_for_thaw_ ? static_cast<short>(POLLIN) : events;
  }
  bool Buffered() const override { return !state_->frozen() && stream_->Buffered(); }
  int fd() const override { return waits_for_thaw_ ? state_->thaw : stream_->fd(); }
  std::optional<Duration> Unacknowledged() const override { return stream_->Unacknowledged(); }
  void Shutdown() override { stream_->Shutdown(); }

 private:
  const std::unique_ptr<ByteStream> stream_;
  const std::shared_ptr<FaultyLinks::State> state_;
  bool written_ = false;
  // Used only by the thread that reads and writes.
  mutable bool waits_for_thaw_ = false;
};

}  // namespace

FaultyLinks::FaultyLinks() : state_(std::make_shared<State>()) {}
FaultyLinks::~FaultyLinks() = default;

std::unique_ptr<ByteStream> FaultyLinks::Wrap(std::unique_ptr<ByteStream> stream) {
  return std::make_unique<FaultyStream>(std::move(stream), state_);
}

void FaultyLinks::Cut() {
  absl::MutexLock lock(&state_->mutex);
  for (ByteStream* stream : state_->streams) stream->Shutdown();
}

void FaultyLinks::Freeze(Duration time) {
  const MonotonicTime until = Clock::now() + time;
  // The ticks of Clock are those of CLOCK_MONOTONIC.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(until.time_since_epoch());
  itimerspec thaw{};
  thaw.it_value = {
      static_cast<time_t>(seconds.count()),
      static_cast<long>(std::chrono::nanoseconds(until.time_since_epoch() - seconds).count())};
  if (state_->thaw < 0 || timerfd_settime(state_->thaw, TFD_TIMER_ABSTIME, &thaw, nullptr) != 0) {
    LogError("the data connections cannot be frozen: no timer (errno {})", errno);
    return;
  }
  state_->frozen_until = until.time_since_epoch().count();
}

}  // namespace muster::transport
