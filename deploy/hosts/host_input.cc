#include "deploy/hosts/host_input.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "deploy/hosts/messages.h"

namespace muster::hosts {

void HostInput::Open(Fd fd) {
  absl::MutexLock lock(&mutex_);
  fd_ = std::move(fd);
  kept_.clear();
  pings_ = false;
}

void HostInput::Close() { Open(Fd()); }

void HostInput::Write(std::string_view bytes) {
  absl::MutexLock lock(&mutex_);
  WriteLocked(bytes);
}

void HostInput::WriteLocked(std::string_view bytes) {
  if (!bytes.empty()) written_ = Clock::now();
  kept_ += bytes;
  while (fd_ && !kept_.empty()) {
    const ssize_t size = write(fd_.get(), kept_.data(), kept_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) break;  // ssh has ended: HostConnection::Tick sees it.
    kept_.erase(0, static_cast<size_t>(size));
  }
  kept_.clear();
}

int HostInput::waiting() const {
  absl::MutexLock lock(&mutex_);
  return kept_.empty() ? -1 : fd_.get();
}

void HostInput::SetPings(bool on) {
  absl::MutexLock lock(&mutex_);
  pings_ = on;
}

void HostInput::Ping(MonotonicTime now) {
  absl::MutexLock lock(&mutex_);
  if (!kept_.empty()) return WriteLocked({});
  if (pings_ && now >= written_ + kPingEvery) WriteLocked(Dump(hosts::Ping()) + "\n");
}

}  // namespace muster::hosts
