// A certificate authority in memory, for tests and benchmarks of what needs a StreamSecurity.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "common/security/stream_security.h"

namespace muster::testing {

struct TestSecurity : security::StreamSecurity {
  std::atomic<int> resumed = 0, full = 0;  // handshakes, as PeerOf saw them
};

class TestAuthority {
 public:
  // Each has a key of its own, whatever the name.
  explicit TestAuthority(std::string cluster = "0123456789abcdef");
  ~TestAuthority();
  // What a task ("worker:1") of this cluster has. `resume`: sessions are kept, by address.
  std::shared_ptr<TestSecurity> Issue(const std::string& task, bool resume = true);
  // ... a task of another one, signed all the same.
  std::shared_ptr<TestSecurity> IssueFor(const std::string& cluster, const std::string& task);
  // ... whose certificate was valid until a day ago.
  std::shared_ptr<TestSecurity> IssueExpired(const std::string& task);

 private:
  struct Keys;
  const std::unique_ptr<Keys> keys_;
};

}  // namespace muster::testing
