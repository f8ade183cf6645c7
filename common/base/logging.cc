#include "common/base/logging.h"

#include <fmt/format.h>
#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/log_writer.h"

namespace muster {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(500), kLongest = std::chrono::seconds(5);

// Formats a line and writes it to stderr. Once the writer's thread has started, only that thread
// uses it.
using Printer = std::shared_ptr<spdlog::sinks::stderr_color_sink_st>;

// True while lines wait to be written. A global, because a signal handler reads it.
std::atomic<bool> g_pending = false;

// The queue of lines and the thread that writes them to stderr. The thread never ends and may block
// in a write, so the object is never destroyed.
class Writer {
 public:
  static Writer& Get() {
    static auto* const writer = new Writer;
    return *writer;
  }

  // A log line, or text to be written unchanged.
  using Item = std::pair<Printer, std::variant<spdlog::details::log_msg_buffer, std::string>>;
  void Add(Item item) {
    absl::MutexLock lock(&mutex_);
    if (items_.size() == kLogLines) {
      items_.pop_front();
      ++missing_;
    }
    items_.push_back(std::move(item));
    g_pending = true;
  }
  void SetHooks(std::function<void()> before, std::function<void()> after) {
    absl::MutexLock lock(&mutex_);
    before_ = std::move(before);
    after_ = std::move(after);
  }

  bool Flush() {
    MonotonicTime last = Clock::now();
    const MonotonicTime end = last + kLongest;
    uint64_t written = written_;
    while (g_pending) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const uint64_t now = written_;
      if (now != written) {
        written = now;
        last = Clock::now();
      } else if (Clock::now() - last > kPatience) {
        return false;
      }
      if (Clock::now() > end) return false;
    }
    return true;
  }

 private:
  Writer() {
    // The new thread inherits a mask that blocks all signals, so other threads handle them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { Run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !items_.empty(); }

  [[noreturn]] void Run() {
    while (true) {
      std::optional<Item> item;
      std::function<void()> before, after;
      uint64_t missing = 0;
      {
        absl::MutexLock lock(&mutex_);
        if (!HasWorkLocked()) g_pending = false;
        mutex_.Await(absl::Condition(this, &Writer::HasWorkLocked));
        // Takes one item at a time. While a write blocks, later lines can still be dropped.
        item = std::move(items_.front());
        items_.pop_front();
        missing = std::exchange(missing_, 0);
        before = before_;
        after = after_;
      }
      if (before) before();
      if (missing > 0)
        WriteStderr(fmt::format("({} lines are missing: nobody read them)\n", missing));
      Write(*item);
      if (after) after();
      ++written_;
    }
  }
  static void Write(const Item& item) {
    if (const auto* text = std::get_if<std::string>(&item.second)) return WriteStderr(*text);
    item.first->log(std::get<spdlog::details::log_msg_buffer>(item.second));
  }

  absl::Mutex mutex_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  uint64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;  // The number of lines dropped before the first.
  std::function<void()> before_ ABSL_GUARDED_BY(mutex_), after_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> written_ = 0;  // The number of items that the thread has written.
};

// The sink of the default logger.
class QueuedSink final : public spdlog::sinks::sink {
 public:
  ~QueuedSink() override { Writer::Get().Flush(); }
  void log(const spdlog::details::log_msg& message) override {
    Writer::Get().Add({printer_, spdlog::details::log_msg_buffer(message)});
  }
  void flush() override { Writer::Get().Flush(); }
  // Must be called before the first line.
  void set_pattern(const std::string& pattern) override { printer_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    printer_->set_formatter(std::move(formatter));
  }

 private:
  const Printer printer_ = std::make_shared<spdlog::sinks::stderr_color_sink_st>();
};

}  // namespace

void InitLogging(const std::string& who) {
  auto logger = std::make_shared<spdlog::logger>("muster", std::make_shared<QueuedSink>());
  const char* name_task = std::getenv(kLogTaskVariable);
  const bool bare = who.empty() || (name_task != nullptr && std::string_view(name_task) == "0");
  logger->set_pattern(bare ? "%H:%M:%S.%e %^%L%$ | %v" : "%H:%M:%S.%e %^%L%$ " + who + " | %v");
  if (const char* level = std::getenv("MUSTER_LOG_LEVEL"))
    logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

bool FlushLog() { return Writer::Get().Flush(); }

void FlushLogInHandler() {
  const timespec pause{0, 1'000'000};
  for (int i = 0; i < 1000 && g_pending; ++i) nanosleep(&pause, nullptr);
}

void WriteStderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

void WriteByLog(std::string text) { Writer::Get().Add({nullptr, std::move(text)}); }

void SetLogHooks(std::function<void()> before, std::function<void()> after) {
  Writer::Get().SetHooks(std::move(before), std::move(after));
}

}  // namespace muster
