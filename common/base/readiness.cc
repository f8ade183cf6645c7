#include "common/base/readiness.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/base/files/fd.h"

namespace muster {

void TellReady() {
  const char* variable = std::getenv(kNotifySocketVariable);
  const std::string_view name = variable != nullptr ? variable : "";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.size() < 2 || name.size() > sizeof address.sun_path) return;
  if (name.front() != '/' && name.front() != '@') return;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const Fd socket_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd) return;
  constexpr std::string_view kReady = "READY=1";
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  (void)!sendto(socket_fd.get(), kReady.data(), kReady.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace muster
