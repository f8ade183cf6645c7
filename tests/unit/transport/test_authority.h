// A certificate authority in memory, for tests and benchmarks that need a StreamSecurity.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "common/security/stream_security.h"

namespace muster::testing {

struct TestSecurity : security::StreamSecurity {
  std::atomic<int> resumed = 0, full = 0;  // The number of handshakes, counted by PeerOf.
};

class TestAuthority {
 public:
  // Every authority has its own key, even if the cluster is the same.
  explicit TestAuthority(std::string cluster = "0123456789abcdef");
  ~TestAuthority();
  // Returns the security of a task ("worker:1") of this cluster. With `resume`, TLS sessions are
  // kept by address and resumed.
  std::shared_ptr<TestSecurity> Issue(const std::string& task, bool resume = true);
  // Returns the security of a task of another cluster, signed by this authority.
  std::shared_ptr<TestSecurity> IssueFor(const std::string& cluster, const std::string& task);
  // Returns a security whose certificate expired a day ago.
  std::shared_ptr<TestSecurity> IssueExpired(const std::string& task);

 private:
  struct Keys;
  const std::unique_ptr<Keys> keys_;
};

}  // namespace muster::testing
