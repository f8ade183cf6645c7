#include "common/train/stop_signals.h"

#include <unistd.h>

#include <thread>

#include "common/base/logging.h"
#include "muster/status.h"

namespace muster {

StopSignals::StopSignals(std::string what, std::function<void()> unheard)
    : what_(std::move(what)), unheard_(std::move(unheard)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);  // every later thread inherits this
}

void StopSignals::Start() {
  std::thread([this] { Take(); }).detach();
}

bool StopSignals::asked() {
  absl::MutexLock lock(&mutex_);
  return asked_;
}

void StopSignals::PassTo(std::function<void()> stop) {
  absl::MutexLock lock(&mutex_);
  stop_ = std::move(stop);
  if (asked_ && stop_ != nullptr) stop_();
}

void StopSignals::Take() {
  int signal = 0;
  sigwait(&signals_, &signal);
  LogInfo("{} received: {}", signal == SIGTERM ? "SIGTERM" : "SIGINT", what_);
  {
    absl::MutexLock lock(&mutex_);
    asked_ = true;
    if (stop_ != nullptr) {
      stop_();
    } else if (unheard_ != nullptr) {
      unheard_();
    }
  }
  sigwait(&signals_, &signal);
  _exit(static_cast<int>(ExitCode::kPreempted));
}

}  // namespace muster
