#include "deploy/launcher/processes/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

namespace muster::launcher {

absl::StatusOr<SignalQueue> SignalQueue::Open() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // Some parents ignore SIGCHLD, which would discard exit codes.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD, SIGTSTP, SIGWINCH}) sigaddset(&signals, signal);
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);
  }
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return ConfigurationError(fmt::format("cannot block signals: {}", std::strerror(errno)));
  }
  SignalQueue queue;
  queue.fd_ = Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!queue.fd_) {
    return ConfigurationError(fmt::format("cannot open a signalfd: {}", std::strerror(errno)));
  }
  return queue;
}

std::optional<int> SignalQueue::Next() {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace muster::launcher
