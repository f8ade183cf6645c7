#include "common/base/process/fatal.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log_writer.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "muster/status.h"

namespace muster {
namespace {

struct Fatal {
  int signal;
  const char* what;
};
constexpr Fatal kFatal[] = {{SIGSEGV, "SIGSEGV (a bad address)"},
                            {SIGBUS, "SIGBUS (memory or a mapped file that is gone)"},
                            {SIGILL, "SIGILL (an instruction that this processor does not have)"},
                            {SIGFPE, "SIGFPE (an arithmetic error)"},
                            {SIGABRT, "SIGABRT (it aborted itself)"}};
constexpr size_t kNumFatal = std::size(kFatal);

// The line of each signal. Filled before the handlers are installed.
char g_lines[kNumFatal][256];
struct sigaction g_before[kNumFatal];

// A signal handler. Makes only async-signal-safe calls.
void OnFatal(int signal) {
  for (size_t i = 0; i < kNumFatal; ++i) {
    if (kFatal[i].signal != signal) continue;
    FlushLogInHandler();
    // Skipped if stderr would block.
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, 1000) > 0) (void)!write(STDERR_FILENO, g_lines[i], std::strlen(g_lines[i]));
    sigaction(signal, &g_before[i], nullptr);  // A sanitizer's handler, or the default.
  }
  raise(signal);
}

struct Uncaught {
  absl::Mutex mu;
  std::function<void(const std::string&)> tell ABSL_GUARDED_BY(mu);
  std::atomic<Duration> limit = Duration::zero();  // Readable without the lock.
};
// Never destroyed, because it is needed until the process has ended.
Uncaught& UncaughtState() {
  static auto* const uncaught = new Uncaught;
  return *uncaught;
}

std::string Sentence() {
  const std::exception_ptr current = std::current_exception();
  if (current == nullptr) return "std::terminate was called on a thread of this process";
  try {
    std::rethrow_exception(current);
  } catch (const std::exception& e) {
    return fmt::format("an exception was not caught on a thread of the program: {}", e.what());
  } catch (...) {
    return "an exception that is no std::exception was not caught on a thread of the program";
  }
}

[[noreturn]] void OnTerminate() {
  static std::atomic<bool> entered = false;
  // The first thread ends the process. Other threads wait for that.
  if (entered.exchange(true)) std::this_thread::sleep_for(std::chrono::hours(1));
  const auto why = std::make_shared<std::string>(Sentence());
  const auto done = std::make_shared<Notification>();
  // This thread may hold any lock, so another thread makes the call.
  std::thread([why, done] {
    Uncaught& uncaught = UncaughtState();
    absl::MutexLock lock(&uncaught.mu);
    if (uncaught.tell) uncaught.tell(*why);
    done->Notify();
  }).detach();
  done->WaitFor(UncaughtState().limit);
  LogError("ROOT CAUSE: {}", *why);
  FlushLog();
  _exit(static_cast<int>(ExitCode::kProgramFailed));
}

}  // namespace

void NameFatalSignals(const std::string& who) {
  static char stack[64 << 10];  // Used by main's thread, because its own stack may have overflowed.
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  for (size_t i = 0; i < kNumFatal; ++i) {
    const std::string line =
        fmt::format("{} (pid {}): killed by {}\n", who, getpid(), kFatal[i].what);
    std::strncpy(g_lines[i], line.c_str(), sizeof g_lines[i] - 1);
    struct sigaction action {};
    action.sa_handler = OnFatal;
    action.sa_flags = SA_ONSTACK;
    sigaction(kFatal[i].signal, &action, &g_before[i]);
  }
}

void OnUncaught(std::function<void(const std::string& why)> tell, Duration limit) {
  std::set_terminate(OnTerminate);
  Uncaught& uncaught = UncaughtState();
  absl::MutexLock lock(&uncaught.mu);
  uncaught.tell = std::move(tell);
  uncaught.limit = limit;
}

}  // namespace muster
