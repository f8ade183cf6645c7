#include "deploy/hosts/local_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "deploy/launcher/processes/child.h"

namespace muster::hosts {
namespace {

// Reads the available bytes. Closes the descriptor at the end of the stream.
void ReadAll(Fd* from, std::string* to) {
  char bytes[16 * 1024];
  while (*from) {
    const ssize_t size = read(from->get(), bytes, sizeof bytes);
    if (size > 0) {
      to->append(bytes, static_cast<size_t>(size));
    } else if (size < 0 && errno == EAGAIN) {
      return;
    } else if (size == 0 || errno != EINTR) {
      from->Reset();
    }
  }
}

}  // namespace

absl::Status CheckSignals(launcher::SignalQueue& signals) {
  while (const std::optional<int> signal = signals.Next()) {
    if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP)
      return Preempted("asked to stop before any task had started");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    const std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
  }
  return ConfigurationError(fmt::format("this host has no program {}", name));
}

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& arguments,
                                         launcher::SignalQueue& signals, Duration timeout) {
  launcher::ChildOptions options;
  options.arguments = arguments;
  MUSTER_ASSIGN_OR_RETURN(options.arguments[0], FindProgram(arguments.at(0)));
  MUSTER_ASSIGN_OR_RETURN(launcher::Child child, launcher::Child::Start(options));
  const MonotonicTime limit = Clock::now() + timeout;
  CommandResult result;
  while (true) {
    const std::optional<launcher::ExitReport> report = child.Reap();
    ReadAll(&child.out, &result.out);
    ReadAll(&child.err, &result.err);
    if (report) {
      result.code = report->code;
      return result;
    }
    absl::Status status = CheckSignals(signals);
    if (status.ok() && Clock::now() > limit)
      status = DeadlinePassed(fmt::format("{} did not end in time", arguments[0]));
    if (!status.ok()) {
      child.Signal(SIGKILL);
      return status;
    }
    pollfd polled[] = {
        {signals.fd(), POLLIN, 0}, {child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}};
    poll(polled, 3, 1000);
  }
}

}  // namespace muster::hosts
