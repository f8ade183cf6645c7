// Holds incoming connections whose hello was read until a caller takes them. The listener's thread
// and callers of DataListener share it. Thread-safe. Admissions and dials may outlive the listener,
// so they share the registry too. Internal.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/transport/data_listener.h"

namespace muster::transport {

// The peer of an incoming connection.
struct Visitor {
  std::string remote;  // "10.0.0.4:5123".
  std::string source;  // The key of its quota: the IPv4 address or the IPv6 network.
  std::string peer;    // The task that its certificate names. Empty without a certificate.
};

class ConnectionRegistry {
 public:
  using Key = std::pair<int, uint32_t>;  // The hello's `from` and `channel`.
  // An incoming connection whose hello was read.
  struct Arrived {
    std::unique_ptr<ByteStream> stream;
    Hello hello;
    Visitor visitor;
  };

  explicit ConnectionRegistry(const ListenerOptions& options);

  security::StreamSecurity* security() const { return security_.get(); }
  std::unique_ptr<ByteStream> Wrap(std::unique_ptr<ByteStream> stream) const {
    return wrap_ ? wrap_(std::move(stream)) : std::move(stream);
  }

  // Accepts, holds or refuses a connection whose hello was read. Holds it if its generation is not
  // admitted here yet.
  void Judge(Arrived arrived);
  void Admit(uint64_t generation, int to, const std::string& ticket);
  void Leave(uint64_t generation);
  std::unique_ptr<DataConnection> Take(uint64_t generation, Key key);
  std::unique_ptr<DataConnection> TakeAny(uint64_t generation);
  void Refused(const Visitor& visitor, std::string_view why);
  void Changed();
  void WaitForChange(uint64_t* seen, Duration limit);

 private:
  using Slots = std::map<Key, std::list<Arrived>>;  // No list is empty.
  struct Generation {
    int to = 0;
    std::string ticket;
    Slots slots;
  };
  struct Held {
    Arrived arrived;
    MonotonicTime until;
    const std::string& owner() const {
      const Visitor& visitor = arrived.visitor;
      return visitor.peer.empty() ? visitor.source : visitor.peer;
    }
  };

  static std::unique_ptr<DataConnection> TakeLocked(Slots& slots, Slots::iterator at);
  void HoldLocked(Arrived arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InsertLocked(Arrived arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefuseLocked(Arrived arrived, Verdict verdict, std::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogRefusalLocked(const Visitor& visitor, std::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<security::StreamSecurity> security_;
  const size_t max_held_, max_held_each_;
  const Duration hold_timeout_;
  const decltype(ListenerOptions::wrap) wrap_;
  absl::Mutex mutex_;
  CondVar changed_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> refused_ ABSL_GUARDED_BY(mutex_);  // Indexed by source.
  std::map<uint64_t, Generation> generations_ ABSL_GUARDED_BY(mutex_);
  std::list<Held> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::transport
