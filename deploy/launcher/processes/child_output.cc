#include "deploy/launcher/processes/child_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include "common/base/files/fd.h"

namespace muster::launcher {
namespace {

constexpr Duration kReap = std::chrono::seconds(1);

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
}

// Returns false if `end` passes before the other side closes the pipe.
bool ReadAll(int fd, MonotonicTime end, std::string* text) {
  while (true) {
    pollfd polled{fd, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const int ready = poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char bytes[4096];
    const ssize_t size = read(fd, bytes, sizeof bytes);
    if (size <= 0) return true;
    text->append(bytes, static_cast<size_t>(size));
  }
}

}  // namespace

absl::StatusOr<std::string> OutputOfChild(const std::function<std::string()>& make,
                                          Duration timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ConfigurationError("no pipe");
  Fd from(ends[0]), to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return ConfigurationError("no process can be started");
  if (child == 0) {
    WriteAll(to.get(), make());
    _exit(0);
  }
  to.Reset();
  std::string text;
  const bool whole = ReadAll(from.get(), Clock::now() + timeout, &text);
  kill(child, SIGKILL);
  // A child that hangs in a driver cannot be reaped.
  const MonotonicTime given_up = Clock::now() + kReap;
  while (waitpid(child, nullptr, WNOHANG) == 0 && Clock::now() < given_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!whole) return DeadlinePassed(fmt::format("no answer within {:g} s", Seconds(timeout)));
  return text;
}

}  // namespace muster::launcher
