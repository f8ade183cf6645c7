// Helpers of the tests of DataListener.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "common/transport/address.h"
#include "common/transport/listener/data_listener.h"

namespace muster::transport {

inline constexpr Duration kLong = std::chrono::seconds(60);

inline std::unique_ptr<DataListener> Listen(ListenerOptions options = {}) {
  options.bind_address = "127.0.0.1";
  auto listener = DataListener::Create(options);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

using Result = absl::StatusOr<std::unique_ptr<DataConnection>>;

inline Result Await(DataListener& listener, Dialing& dialing, Duration limit = kLong) {
  const MonotonicTime until = Clock::now() + limit;
  for (uint64_t seen = 0; Clock::now() < until;
       listener.WaitForChange(&seen, std::chrono::milliseconds(20))) {
    if (auto result = dialing.TakeResult()) return *std::move(result);
  }
  return DeadlinePassed("still under way");
}

inline std::unique_ptr<DataConnection> AwaitTake(DataListener& listener, Admission& admission,
                                                 int from) {
  const MonotonicTime until = Clock::now() + kLong;
  for (uint64_t seen = 0; Clock::now() < until;
       listener.WaitForChange(&seen, std::chrono::milliseconds(20))) {
    if (auto connection = admission.Take(from, 0)) return connection;
  }
  return nullptr;
}

inline DialRequest To(const std::string& address, Hello hello, std::string peer = "") {
  return {address, std::move(hello), Clock::now() + kLong, std::move(peer)};
}
inline DialRequest To(const DataListener& listener, Hello hello) {
  return To(listener.address(), std::move(hello));
}

// Returns a connected socket that has sent nothing. `from` is its own address, in 127.0.0.0/8.
// Returns -1 if the process has no more descriptors.
inline int RawConnect(const std::string& address, const char* from = "127.0.0.1") {
  const Endpoint endpoint = *ParseEndpoint(address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in own{}, other{};
  own.sin_family = other.sin_family = AF_INET;
  inet_pton(AF_INET, from, &own.sin_addr);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  other.sin_port = htons(endpoint.port);
  inet_pton(AF_INET, endpoint.host.c_str(), &other.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&other), sizeof other), 0);
  return fd;
}

// Returns whether the other side closes the connection within the limit.
inline bool IsClosed(int fd, int limit_ms) {
  pollfd polled{fd, POLLIN, 0};
  for (char byte[64]; poll(&polled, 1, limit_ms) == 1;) {
    if (recv(fd, byte, sizeof byte, 0) <= 0) return true;
  }
  return false;
}

}  // namespace muster::transport
