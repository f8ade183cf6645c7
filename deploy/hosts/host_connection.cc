#include "deploy/hosts/host_connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "deploy/hosts/local_command.h"
#include "deploy/hosts/ssh_command.h"
#include "muster/version.h"

namespace muster::hosts {
namespace {

// Timeout for ssh to connect and authenticate. In most cases, ssh itself fails earlier.
constexpr Duration kConnectLimit = std::chrono::seconds(45);
constexpr Duration kCopyLimit = std::chrono::hours(4);
// Timeout for the host to find the folder and the program, and to print its version. run-tasks,
// which waits for the end of an earlier one, starts afterwards.
constexpr Duration kStartLimit = std::chrono::seconds(45);
// A line of ssh explains the end of a connection that works or waits only if it is this new.
constexpr Duration kLastWords = std::chrono::seconds(5);
// How often the end of ssh is polled if no signal arrives.
constexpr Duration kLookEvery = std::chrono::seconds(1);
constexpr size_t kRemarks = 20;

}  // namespace

HostConnection::HostConnection(ConnectionOptions options, size_t index,
                               ConnectionListener& listener)
    : options_(std::move(options)), index_(index), listener_(listener) {}

HostConnection::~HostConnection() { Forget(); }

// Kills the previous ssh processes and waits for their end, at most 2 s.
void HostConnection::Forget() {
  const MonotonicTime limit = Clock::now() + std::chrono::seconds(2);
  if (copy_) copy_->Signal(SIGKILL);
  if (ssh_) ssh_->Signal(SIGKILL);
  while (Clock::now() < limit) {
    if (copy_ && copy_->Reap()) copy_.reset();
    if (Ended() && !copy_) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

absl::Status HostConnection::Open() {
  Forget();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return ConfigurationError(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  fcntl(write_end.get(), F_SETFL, fcntl(write_end.get(), F_GETFL) | O_NONBLOCK);
  input_.Open(std::move(write_end));
  launcher::ChildOptions options;
  options.arguments = FirstSession(options_.ssh, options_.control, options_.target, ShellCommand());
  MUSTER_ASSIGN_OR_RETURN(options.arguments[0], FindProgram(options.arguments[0]));
  options.input = read_end.get();
  unlink(options_.control.c_str());  // The socket of a lost connection.
  MUSTER_ASSIGN_OR_RETURN(launcher::Child child, launcher::Child::Start(options));
  ssh_.emplace(std::move(child));
  out_ = launcher::LineSplitter(kLongestMessage);
  err_ = launcher::LineSplitter();
  remarks_.clear();
  phase_ = Phase::kConnecting;
  limit_ = Clock::now() + kConnectLimit;
  status_ = absl::OkStatus();
  return absl::OkStatus();
}

void HostConnection::Send(const Json& message) {
  std::string line = Dump(message) + "\n";
  if (phase_ != Phase::kReady) {
    waiting_.push_back(std::move(line));
    return;
  }
  input_.Write(line);
}

void HostConnection::SetSuspended(bool suspended) {
  if (phase_ != Phase::kReady) return;
  if (!suspended) {
    input_.SetPings(true);
    return Send(hosts::Ping());
  }
  input_.SetPings(false);  // A ping would end the suspension.
  Send(ToJson(SuspendRequest{static_cast<int>(Seconds(kSuspendLimit))}));
  pollfd full = {input_.waiting(), POLLOUT, 0};
  if (full.fd >= 0 && poll(&full, 1, 1000) > 0) input_.Flush();
}

void HostConnection::AddPolled(bool output, std::vector<pollfd>* polled) const {
  // Before the host is ready, its output has no task output.
  const bool read = output || phase_ != Phase::kReady;
  polled->push_back({ssh_ && read ? ssh_->out.get() : -1, POLLIN, 0});
  polled->push_back({ssh_ ? ssh_->err.get() : -1, POLLIN, 0});
  polled->push_back({input_.waiting(), POLLOUT, 0});
  polled->push_back({copy_ ? copy_->out.get() : -1, POLLIN, 0});
  polled->push_back({copy_ ? copy_->err.get() : -1, POLLIN, 0});
}

void HostConnection::Read(const pollfd* polled) {
  if (polled[1].revents != 0 && ssh_) ReadSome(&ssh_->err, &err_, true);
  if (polled[0].revents != 0 && ssh_) ReadSome(&ssh_->out, &out_, false);
  if (polled[2].revents != 0) input_.Flush();
  if (polled[3].revents != 0 && copy_) ReadSome(&copy_->out, &copy_err_, true);
  if (polled[4].revents != 0 && copy_) ReadSome(&copy_->err, &copy_err_, true);
}

std::optional<MonotonicTime> HostConnection::Tick(MonotonicTime now) {
  if (phase_ == Phase::kLost) return std::nullopt;
  if (copy_) {
    if (const auto report = copy_->Reap()) EndCopy(report->code);
  }
  if (ssh_) {
    if (const auto report = ssh_->Reap()) {
      Drain();
      ssh_.reset();
      Fail(WhyEnded(report->code));
    }
  }
  if (phase_ == Phase::kLost) return now;  // Lost in this call: the tasks ended now.
  if (phase_ != Phase::kReady) {
    if (now > limit_) {
      Fail(PeerLost(fmt::format("{}: no answer for {:.0f} s", options_.target,
                                Seconds(phase_ == Phase::kCopying ? kCopyLimit : kConnectLimit))));
      return now;
    }
    return std::min(limit_, now + kLookEvery);
  }
  return now + kLookEvery;
}

void HostConnection::Close() {
  input_.Close();
  if (phase_ == Phase::kReady) return;
  if (copy_) copy_->Signal(SIGKILL);
  if (ssh_) ssh_->Signal(SIGKILL);
}

bool HostConnection::Ended() {
  if (ssh_ && ssh_->Reap()) ssh_.reset();
  return !ssh_;
}

void HostConnection::OnLine(std::string_view line) {
  switch (phase_) {
    case Phase::kConnecting:
      if (line != kShellReady) return;  // Output of the user's login files.
      if (options_.unpack.empty() || has_copy_) return SendStartLine();
      return StartCopy();
    case Phase::kStarting:
      if (line.starts_with(kVersionIs)) CheckVersion(line.substr(kVersionIs.size()));
      return;
    case Phase::kReady: {
      if (const std::optional<TaskLine> text = ParseTaskLine(line))
        return listener_.OnTaskLine(index_, *text);
      const absl::StatusOr<Json> message = ParseJson(line, options_.target);
      if (message.ok()) return listener_.OnMessage(index_, *message);
      return listener_.OnRemark(index_, line);
    }
    case Phase::kCopying:
    case Phase::kCopied:
    case Phase::kLost:
      return;
  }
}

void HostConnection::OnError(std::string_view line) {
  if (phase_ == Phase::kReady) {
    listener_.OnRemark(index_, line);
    remarks_.clear();  // Keep only the last line, as the reason if the connection ends.
  }
  remarks_.emplace_back(line);
  remarked_ = Clock::now();
  if (remarks_.size() > kRemarks) remarks_.pop_front();
}

void HostConnection::StartCopy() {
  phase_ = Phase::kCopying;
  limit_ = Clock::now() + kCopyLimit;
  const Fd archive(open(options_.archive.c_str(), O_RDONLY | O_CLOEXEC));
  launcher::ChildOptions options;
  options.arguments =
      FurtherSession(options_.ssh, options_.control, options_.target, options_.unpack);
  options.input = archive.get();
  absl::StatusOr<std::string> program = FindProgram(options.arguments[0]);
  if (!program.ok()) return Fail(program.status());
  options.arguments[0] = *program;
  absl::StatusOr<launcher::Child> child = launcher::Child::Start(options);
  if (!child.ok()) return Fail(child.status());
  copy_.emplace(*std::move(child));
}

void HostConnection::EndCopy(int code) {
  while (ReadSome(&copy_->err, &copy_err_, true)) {
  }
  copy_.reset();
  if (phase_ != Phase::kCopying) return;
  if (code == 0) {
    has_copy_ = true;
    phase_ = Phase::kCopied;
    limit_ = MonotonicTime::max();
    return;
  }
  Fail(ConfigurationError(
      fmt::format("{}: cannot copy: {}", options_.target,
                  remarks_.empty() ? fmt::format("exit code {}", code) : remarks_.back())));
}

void HostConnection::StartAfterCopy() {
  if (phase_ == Phase::kCopied) SendStartLine();
}

void HostConnection::SendStartLine() {
  phase_ = Phase::kStarting;
  limit_ = Clock::now() + kStartLimit;
  input_.Write(options_.start_line + "\n");
}

void HostConnection::CheckVersion(std::string_view version) {
  constexpr std::string_view kOwn = MUSTER_VERSION;
  if (version.empty()) {
    return Fail(ConfigurationError(
        fmt::format("{}: the program {} is missing: install Muster there, or name its folder with "
                    "--bin-dir, or copy one with --copy and --bin-dir",
                    options_.target, options_.muster)));
  }
  if (version != kOwn) {
    return Fail(ConfigurationError(
        fmt::format("{}: {} is version {}, and this is {}: install the same version on all hosts",
                    options_.target, options_.muster, version, kOwn)));
  }
  phase_ = Phase::kReady;
  input_.Write(first_);
  for (const std::string& line : waiting_) input_.Write(line);
  waiting_.clear();
  input_.SetPings(true);
}

// Returns false if nothing more can be read now.
bool HostConnection::ReadSome(Fd* from, launcher::LineSplitter* lines, bool error) {
  if (!*from) return false;
  const auto on_line = [&](std::string_view line) { error ? OnError(line) : OnLine(line); };
  const bool more = launcher::ReadLines(from, lines, on_line);
  if (!*from) lines->Finish(on_line);
  return more;
}

// Reads the remaining output of ssh. Does not wait for the end of the stream, because a process of
// the user's ssh configuration may hold the pipe open.
void HostConnection::Drain() {
  constexpr int kMaxReads = 64;  // More than a pipe holds.
  for (int i = 0; i < kMaxReads && ReadSome(&ssh_->out, &out_, false); ++i) {
  }
  for (int i = 0; i < kMaxReads && ReadSome(&ssh_->err, &err_, true); ++i) {
  }
}

absl::Status HostConnection::WhyEnded(int code) const {
  const bool waits = phase_ == Phase::kCopied || phase_ == Phase::kReady;
  const bool old = waits && Clock::now() - remarked_ > kLastWords;
  const bool explained = !remarks_.empty() && !old;
  const std::string last =
      explained ? remarks_.back() : fmt::format("ssh ended with code {}", code);
  switch (phase_) {
    case Phase::kConnecting:
      return CannotConnect(options_.target, last);
    case Phase::kStarting:
      // ssh exits with 255 if the connection failed, and otherwise with the command's exit code.
      if (code == 255) return PeerLost(fmt::format("{}: {}", options_.target, last));
      return ConfigurationError(fmt::format("{}: {}", options_.target, last));
    case Phase::kCopying:
    case Phase::kCopied:
      return PeerLost(fmt::format("the connection to {} ended: {}", options_.target, last));
    default:
      return PeerLost(fmt::format("the connection to {} ended: {}", options_.target,
                                  code == 255 || explained
                                      ? last
                                      : fmt::format("muster run-tasks ended with code {}", code)));
  }
}

void HostConnection::Fail(absl::Status status) {
  if (phase_ == Phase::kLost) return;
  status_ = std::move(status);
  // The status contains the last line.
  for (size_t i = 0; i + 1 < remarks_.size(); ++i) listener_.OnRemark(index_, remarks_[i]);
  remarks_.clear();
  phase_ = Phase::kLost;
  input_.Close();
  if (copy_) copy_->Signal(SIGKILL);
  if (ssh_) ssh_->Signal(SIGKILL);
  listener_.OnLost(index_);
}

}  // namespace muster::hosts
