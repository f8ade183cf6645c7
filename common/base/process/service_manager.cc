#include "common/base/process/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "common/base/files/fd.h"

namespace muster {
namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void Send(std::string_view socket_name, std::string_view message) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_name.size() < 2 || socket_name.size() > sizeof address.sun_path) return;
  if (socket_name.front() != '/' && socket_name.front() != '@') return;
  std::memcpy(address.sun_path, socket_name.data(), socket_name.size());
  if (socket_name.front() == '@') address.sun_path[0] = '\0';
  const Fd socket_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_name.size());
  (void)!sendto(socket_fd.get(), message.data(), message.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address), length);
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Half of the time within which the manager must hear of this process; nullopt: it does not watch.
std::optional<std::chrono::microseconds> WatchdogInterval() {
  const std::optional<uint64_t> limit = Number(Variable(kWatchdogVariable));
  const std::string_view pid = Variable(kWatchdogPidVariable);
  constexpr uint64_t kLongest = 86'400'000'000;  // A day: a limit above it is watched as often.
  if (!limit || *limit < 2) return std::nullopt;
  if (!pid.empty() && Number(pid) != static_cast<uint64_t>(getpid())) return std::nullopt;
  return std::chrono::microseconds(std::min(*limit, kLongest) / 2);
}

}  // namespace

void TellReady() {
  const std::string socket_name(Variable(kNotifySocketVariable));
  if (socket_name.empty()) return;
  Send(socket_name, "READY=1");
  static std::atomic<bool> started = false;
  const auto interval = WatchdogInterval();
  if (!interval || started.exchange(true)) return;
  // It ends with the process.
  try {
    std::thread([socket_name, interval = *interval] {
      while (true) {
        Send(socket_name, "WATCHDOG=1");
        std::this_thread::sleep_for(interval);
      }
    }).detach();
  } catch (const std::system_error&) {
    started = false;  // No thread can be started. The manager ends a process that stays silent.
  }
}

}  // namespace muster
