#include "common/base/process/termination_message.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace muster {
namespace {

std::string_view CutAtCharacter(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  // A byte 10xxxxxx continues a character.
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string TerminationLog() {
  const char* path = std::getenv(kTerminationLogVariable);
  return path != nullptr ? path : "/dev/termination-log";
}

void WriteTerminationMessage(const std::string& path, std::string_view message) {
  // O_NONBLOCK: a pipe without a reader would block the process.
  const int fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat file {};
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && ftruncate(fd, 0) == 0) {
    message = CutAtCharacter(message, kTerminationMessageBytes);
    while (!message.empty()) {
      const ssize_t n = write(fd, message.data(), message.size());
      if (n <= 0) break;
      message.remove_prefix(static_cast<size_t>(n));
    }
  }
  close(fd);
}

}  // namespace muster
