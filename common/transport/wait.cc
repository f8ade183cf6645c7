#include "common/transport/wait.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/logging.h"
#include "common/transport/data_connection.h"

namespace muster::transport {
namespace {

// The polling interval for a signal without a descriptor.
constexpr Duration kLook = std::chrono::milliseconds(10);

}  // namespace

AbortSignal::AbortSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  static std::atomic<bool> logged = false;
  if (fd_ < 0 && !logged.exchange(true)) {
    LogWarning("waits poll, because no descriptor for a signal can be created: {}; raise ulimit -n",
               strerror(errno));
  }
}

AbortSignal::~AbortSignal() {
  if (fd_ >= 0) close(fd_);
}

void AbortSignal::Set() {
  set_.store(true, std::memory_order_release);
  if (fd_ < 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof one);
}

WaitResult WaitReady(std::span<Interest> interests, MonotonicTime deadline,
                     const AbortSignal& abort) {
  constexpr size_t kInline = 16;
  pollfd few[kInline];
  std::vector<pollfd> many;
  pollfd* polled = few;
  if (interests.size() + 1 > kInline) {
    many.resize(interests.size() + 1);
    polled = many.data();
  }
  polled[0] = {abort.fd(), POLLIN, 0};
  bool buffered = false;
  for (size_t i = 0; i < interests.size(); ++i) {
    const Interest& want = interests[i];
    const short events = want.connection->PollEvents(want.read, want.write);
    // poll ignores a negative descriptor. Otherwise the loop would spin on POLLHUP of a connection
    // that waits for neither reading nor writing.
    polled[i + 1] = {events == 0 ? -1 : want.connection->fd(), events, 0};
    buffered |= want.read && want.connection->Buffered();
  }
  for (;;) {
    if (abort.is_set()) return WaitResult::kAborted;
    const MonotonicTime now = Clock::now();
    auto left = buffered ? Duration::zero() : std::max(deadline - now, Duration::zero());
    if (abort.fd() < 0) left = std::min(left, kLook);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{static_cast<time_t>(seconds.count()),
                           static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
    const int n = ppoll(polled, interests.size() + 1, &timeout, nullptr);
    if (n < 0 && errno != EINTR) return WaitResult::kDeadline;
    if (abort.is_set()) return WaitResult::kAborted;
    if (n > 0 || buffered) {
      for (size_t i = 0; i < interests.size(); ++i) {
        Interest& want = interests[i];
        want.ready =
            (n > 0 && polled[i + 1].revents != 0) || (want.read && want.connection->Buffered());
      }
      return WaitResult::kReady;
    }
    if (Clock::now() >= deadline) return WaitResult::kDeadline;
  }
}

}  // namespace muster::transport
