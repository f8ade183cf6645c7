#include "deploy/launcher/processes/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "deploy/launcher/processes/exec_image.h"

namespace muster::launcher {
namespace {

constexpr int kProgressFd = 3;

struct Pipe {
  Fd read, write;
};

absl::Status MakePipe(Pipe* pipe) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return ConfigurationError(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  }
  pipe->read = Fd(ends[0]);
  pipe->write = Fd(ends[1]);
  return absl::OkStatus();
}

// Makes a socket pair instead of a pipe, so that SIGPIPE cannot kill the writer and the writer
// cannot block. It transfers packets, so two writers in one process cannot mix their lines.
absl::Status MakeProgressPipe(Pipe* pipe) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ConfigurationError(fmt::format("cannot open a socket pair: {}", std::strerror(errno)));
  }
  pipe->read = Fd(ends[0]);
  pipe->write = Fd(ends[1]);
  return absl::OkStatus();
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::map<std::string, std::string> VariablesOf(const ChildOptions& options) {
  std::map<std::string, std::string> variables = options.environment;
  if (!options.progress_variable.empty()) {
    variables[options.progress_variable] = std::to_string(kProgressFd);
  }
  return variables;
}

// All data that the child needs between fork and exec, where it must not allocate.
struct ExecPlan {
  char* const* argv;
  char* const* envp;
  int in, out, err, progress, failure;
  pid_t parent;
};

[[noreturn]] void Exec(const ExecPlan& plan) {
  // The launcher may have died before prctl took effect. Then no signal would kill this process.
  bool ready = setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (getppid() != plan.parent) _exit(128 + SIGKILL);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGCHLD, SIGTSTP}) {
    std::signal(signal, SIG_DFL);
  }
  // A stop request during the start of the program stays pending until the program is ready.
  sigset_t waiting;
  sigemptyset(&waiting);
  sigaddset(&waiting, SIGINT);
  sigaddset(&waiting, SIGTERM);
  sigprocmask(SIG_SETMASK, &waiting, nullptr);
  const int in = plan.in >= 0 ? plan.in : open("/dev/null", O_RDONLY);
  ready = ready && in >= 0;
  // Clear close-on-exec.
  if (in == STDIN_FILENO) ready = ready && fcntl(in, F_SETFD, 0) == 0;
  if (in > STDIN_FILENO) {  // The descriptor is 0 if the launcher has no standard input.
    ready = ready && dup2(in, STDIN_FILENO) >= 0;
    close(in);
  }
  ready = ready && dup2(plan.out, STDOUT_FILENO) >= 0 && dup2(plan.err, STDERR_FILENO) >= 0 &&
          (plan.progress < 0 || dup2(plan.progress, kProgressFd) >= 0);
  if (ready) execve(plan.argv[0], plan.argv, plan.envp);
  const int error = errno;
  const ssize_t ignored = write(plan.failure, &error, sizeof error);
  (void)ignored;
  _exit(127);
}

// Replaces the descriptor by a copy above 3, because the child reassigns 0 to 3.
absl::Status MoveUp(Fd* fd) {
  const int copy = fcntl(fd->get(), F_DUPFD_CLOEXEC, kProgressFd + 1);
  if (copy < 0) {
    return ConfigurationError(
        fmt::format("cannot copy a file descriptor: {}", std::strerror(errno)));
  }
  *fd = Fd(copy);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Child> Child::Start(const ChildOptions& options) {
  const std::string& path = options.arguments.at(0);
  Pipe out, err, progress, failure;
  MUSTER_RETURN_IF_ERROR(MakePipe(&out));
  MUSTER_RETURN_IF_ERROR(MakePipe(&err));
  MUSTER_RETURN_IF_ERROR(MakePipe(&failure));
  if (!options.progress_variable.empty()) MUSTER_RETURN_IF_ERROR(MakeProgressPipe(&progress));
  for (Pipe* pipe : {&out, &err, &failure, &progress}) {
    if (pipe->write) MUSTER_RETURN_IF_ERROR(MoveUp(&pipe->write));
  }
  const ExecImage image(options.arguments, VariablesOf(options));
  const ExecPlan plan = {.argv = image.argv(),
                         .envp = image.envp(),
                         .in = options.input,
                         .out = out.write.get(),
                         .err = err.write.get(),
                         .progress = progress.write.get(),
                         .failure = failure.write.get(),
                         .parent = getpid()};

  const pid_t pid = fork();
  if (pid < 0) {
    return ConfigurationError(fmt::format("cannot start {}: {}", path, std::strerror(errno)));
  }
  if (pid == 0) Exec(plan);
  setpgid(pid, pid);  // Both parent and child do this, so that the order does not matter.
  failure.write.Reset();
  int error = 0;
  ssize_t size;
  do {
    size = read(failure.read.get(), &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  if (size != 0) {
    waitpid(pid, nullptr, 0);
    return ConfigurationError(fmt::format("cannot start {}: {}", path, std::strerror(error)));
  }
  Child child;
  child.pid_ = pid;
  child.out = std::move(out.read);
  child.err = std::move(err.read);
  child.progress = std::move(progress.read);
  for (const Fd* fd : {&child.out, &child.err, &child.progress}) {
    if (*fd) SetNonBlocking(fd->get());
  }
  return child;
}

void Child::Signal(int signal) const {
  if (!reaped_) kill(-pid_, signal);
}

std::optional<ExitReport> Child::Reap() {
  if (reaped_) return std::nullopt;
  const std::optional<ExitReport> report = ReapGroup(pid_);
  reaped_ = report.has_value();
  return report;
}

std::optional<ExitReport> ReapGroup(pid_t leader) {
  siginfo_t info = {};
  // Kills the group before reaping. While the child is a zombie, no other process can get the
  // group's id.
  if (waitid(P_PID, static_cast<id_t>(leader), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  kill(-leader, SIGKILL);
  int status = 0;
  if (waitpid(leader, &status, 0) != leader) return std::nullopt;
  if (WIFSIGNALED(status)) return ExitReport{128 + WTERMSIG(status), WTERMSIG(status)};
  return ExitReport{WEXITSTATUS(status), 0};
}

}  // namespace muster::launcher
