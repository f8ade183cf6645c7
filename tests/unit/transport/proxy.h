// A TCP proxy between two data listeners. It records the bytes that pass, and can flip one bit.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "tests/unit/transport/listeners.h"

namespace muster::testing {

class Proxy {
 public:
  // Flips one bit of the byte number `flip` (from 0) in the stream from the dialing sides.
  explicit Proxy(std::string target, size_t flip = SIZE_MAX)
      : target_(std::move(target)), flip_(flip), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof own;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&own), length), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length);
    address_ = transport::JoinEndpoint("127.0.0.1", ntohs(own.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stopping_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) {
      close(pair.near);
      close(pair.far);
    }
    close(listener_);
  }
  const std::string& address() const { return address_; }
  // Returns the bytes from the dialing sides.
  std::string seen_up() const {
    const std::lock_guard lock(mutex_);
    return up_;
  }
  // Returns the bytes of both directions.
  std::string seen() const {
    const std::lock_guard lock(mutex_);
    return up_ + down_;
  }

 private:
  struct Pair {
    int near, far;
    bool done = false;
  };

  void Run() {
    while (!stopping_) {
      std::vector<pollfd> polled{{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        polled.push_back({pair.done ? -1 : pair.near, POLLIN, 0});
        polled.push_back({pair.done ? -1 : pair.far, POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), 5) <= 0) continue;
      size_t i = 1;
      for (Pair& pair : pairs_) {
        if (polled[i++].revents != 0) PassOn(pair, pair.near, pair.far, up_, flip_);
        if (polled[i++].revents != 0) PassOn(pair, pair.far, pair.near, down_, SIZE_MAX);
      }
      if (polled[0].revents == 0) continue;
      const int near = accept(listener_, nullptr, nullptr);
      pairs_.push_back({near, transport::RawConnect(target_)});
    }
  }

  void PassOn(Pair& pair, int from, int to, std::string& seen, size_t flip) {
    char bytes[65536];
    const ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0 || pair.done) {
      pair.done = true;
      shutdown(pair.near, SHUT_RDWR);
      shutdown(pair.far, SHUT_RDWR);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (flip >= seen.size() && flip < seen.size() + n) bytes[flip - seen.size()] ^= 0x04;
      seen.append(bytes, n);
    }
    for (ssize_t at = 0; at < n;) {
      const ssize_t sent = send(to, bytes + at, n - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += sent;
    }
  }

  const std::string target_;
  const size_t flip_;
  const int listener_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::list<Pair> pairs_;  // Used only by the thread.
  mutable std::mutex mutex_;
  std::string up_, down_;  // The bytes from and to the dialing sides.
  std::thread thread_;
};

}  // namespace muster::testing
