#include "common/process/stop_signals.h"

#include <unistd.h>

#include <thread>

#include "common/base/logging.h"

namespace muster {

StopSignals::StopSignals(std::string what, std::function<void()> on_unhandled)
    : what_(std::move(what)), on_unhandled_(std::move(on_unhandled)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);  // Every later thread inherits this mask.
}

void StopSignals::Start() {
  std::thread([this] { Take(); }).detach();
}

bool StopSignals::requested() {
  absl::MutexLock lock(&mutex_);
  return requested_;
}

void StopSignals::SetHandler(std::function<void()> stop) {
  absl::MutexLock lock(&mutex_);
  stop_ = std::move(stop);
  if (requested_ && stop_ != nullptr) stop_();
}

void StopSignals::Ask() {
  absl::MutexLock lock(&mutex_);
  requested_ = true;
  if (stop_ != nullptr) {
    stop_();
  } else if (on_unhandled_ != nullptr) {
    on_unhandled_();
  }
}

void StopSignals::Take() {
  int interrupts = 0;
  for (int taken = 1;; ++taken) {
    int signal = 0;
    sigwait(&signals_, &signal);
    if (signal == SIGINT && ++interrupts > 1) _exit(128 + SIGINT);
    const char* const name = signal == SIGTERM ? "SIGTERM" : "SIGINT";
    if (taken == 1) {
      LogInfo("{} received: {}", name, what_);
      Ask();
    } else if (taken == 2) {
      LogInfo("{} received again: this process is already stopping", name);
    }
  }
}

}  // namespace muster
