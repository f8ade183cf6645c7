// The sinks of ProgressStates: a pipe to the launcher, the terminal, and the log.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log_writer.h"
#include "common/base/logging.h"
#include "common/telemetry/progress.h"

namespace muster {
namespace {

using Kind = ProgressState::Kind;

// The bar changes at most this often, because people cannot read faster.
constexpr Duration kInterval = std::chrono::milliseconds(100);

bool IsPassing(const ProgressState& state) {
  return state.kind == Kind::kStep || state.kind == Kind::kEvaluate;
}

class Sender final : public ProgressSink {
 public:
  explicit Sender(int fd) : fd_(fd) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    struct stat kind;
    is_socket_ = fstat(fd, &kind) == 0 && S_ISSOCK(kind.st_mode);
    if (is_socket_) return;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    std::signal(SIGPIPE, SIG_IGN);
  }
  ~Sender() override { close(fd_); }

  void Show(const ProgressState& state) override {
    const MonotonicTime now = Clock::now();
    if (IsPassing(state) && now < next_) return;
    next_ = now + kInterval;
    pending_ += Dump(ProgressToJson(state)) + '\n';
    Send();
  }

 private:
  // Sends as much as the reader accepts. The rest is sent with a later state. If the reader is very
  // slow or dead, whole states are dropped, never a part of a line.
  void Send() {
    const ssize_t sent =
        is_socket_ ? send(fd_, pending_.data(), pending_.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                   : write(fd_, pending_.data(), pending_.size());
    if (sent > 0) pending_.erase(0, static_cast<size_t>(sent));
    if (pending_.size() > kMaxPending) pending_.resize(pending_.find('\n') + 1);
  }

  static constexpr size_t kMaxPending = 64 * 1024;
  int fd_;
  bool is_socket_ = false;
  MonotonicTime next_;
  std::string pending_;
};

class LogPrinter final : public ProgressSink {
 public:
  void Show(const ProgressState& state) override {
    for (const std::string& line : display_.Update(state, Clock::now())) LogInfo("{}", line);
  }

 private:
  ProgressDisplay display_{/*terminal=*/false, /*unicode=*/false};
};

class TerminalPrinter final : public ProgressSink {
 public:
  TerminalPrinter() : display_(/*terminal=*/true, LocaleIsUtf8()) {
    SetLogHooks([] { WriteStderr(kClearLine); }, [bar = bar_] { WriteStderr(bar->Get()); });
  }
  ~TerminalPrinter() override {
    FlushLog();  // Lines that are still pending then appear above the bar.
    SetLogHooks(nullptr, nullptr);
    WriteByLog(std::string(kClearLine));
  }

  void Show(const ProgressState& state) override {
    const MonotonicTime now = Clock::now();
    const std::vector<std::string> lines = display_.Update(state, now);
    if (IsPassing(state) && now < next_draw_) return;
    next_draw_ = now + kInterval;
    const std::string bar = display_.Bar(Width() - 1, now);
    bar_->Set(bar);
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    // Draws the bar here too, because a short pass may end before the log's thread draws it for the
    // first time.
    if (!std::exchange(drawn_, true)) text.append(bar).append(kClearLine);
    WriteByLog(std::move(text));
  }

 private:
  static constexpr std::string_view kClearLine = "\r\x1b[K";
  // Lets the log's thread draw a bar below the log lines.
  class Bar {
   public:
    void Set(std::string bar) {
      absl::MutexLock lock(&mutex_);
      bar_ = std::move(bar);
    }
    std::string Get() const {
      absl::MutexLock lock(&mutex_);
      return bar_;
    }

   private:
    mutable absl::Mutex mutex_;
    std::string bar_ ABSL_GUARDED_BY(mutex_);
  };

  static int Width() {
    winsize size = {};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }

  ProgressDisplay display_;
  MonotonicTime next_draw_;
  bool drawn_ = false;
  const std::shared_ptr<Bar> bar_ = std::make_shared<Bar>();
};

}  // namespace

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale = value;
    return locale.find("UTF-8") != std::string_view::npos ||
           locale.find("utf8") != std::string_view::npos;
  }
  return false;
}

std::optional<int> ProgressFdFromEnvironment() {
  const char* value = std::getenv(kProgressFdVariable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  char* end = nullptr;
  const long fd = std::strtol(value, &end, 10);
  if (*end != '\0' || fd < 0 || fcntl(static_cast<int>(fd), F_GETFD) < 0) return std::nullopt;
  return static_cast<int>(fd);
}

std::unique_ptr<ProgressSink> MakeProgressSender(int fd) { return std::make_unique<Sender>(fd); }

std::unique_ptr<ProgressSink> MakeProgressPrinter() {
  if (isatty(STDERR_FILENO) != 0) return std::make_unique<TerminalPrinter>();
  return std::make_unique<LogPrinter>();
}

std::unique_ptr<ProgressSink> MakeProgressSink() {
  if (const std::optional<int> fd = ProgressFdFromEnvironment()) return MakeProgressSender(*fd);
  return MakeProgressPrinter();
}

}  // namespace muster
