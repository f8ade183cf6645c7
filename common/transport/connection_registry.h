// Holds incoming connections from the time their hello was read until a caller takes them. Internal
// to DataListener: the listener, its admissions and its dials share one registry, because
// admissions and dials may outlive the listener. Thread-safe.
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
  std::string source;  // The key for limits: the IPv4 address, or the /64 network for IPv6.
  std::string peer;    // The task in the peer's certificate. Empty without a certificate.
};

class ConnectionRegistry {
 public:
  using Key = std::pair<int, uint32_t>;  // The hello's `from` and `channel`.
  // An incoming connection and its hello.
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

  // Accepts or refuses a connection, and replies to its hello. If the connection's generation is
  // newer than any admitted one, holds the connection without a reply.
  void Route(Arrived arrived);
  // Accepts connections of `generation` from now on, including held ones (DataListener::Admit).
  void Admit(uint64_t generation, int to, const std::string& ticket);
  // Ends an admission and closes the connections that were not taken.
  void Leave(uint64_t generation);
  // Return an accepted connection of `generation`, null if there is none.
  std::unique_ptr<DataConnection> Take(uint64_t generation, Key key);
  std::unique_ptr<DataConnection> TakeAny(uint64_t generation);
  // Logs that a connection was closed before its hello was read. Limits the number of lines.
  void Refused(const Visitor& visitor, std::string_view why);
  // Wakes WaitForChange.
  void Changed();
  // See DataListener::WaitForChange.
  void WaitForChange(uint64_t* seen, Duration limit);

 private:
  using Slots = std::map<Key, std::list<Arrived>>;  // The lists are not empty.
  struct Generation {
    int to = 0;
    std::string ticket;
    Slots slots;
  };
  struct EarlyConnection {
    Arrived arrived;
    MonotonicTime until;
    const std::string& owner() const {
      const Visitor& visitor = arrived.visitor;
      return visitor.peer.empty() ? visitor.source : visitor.peer;
    }
  };

  static std::unique_ptr<DataConnection> TakeLocked(Slots& slots, Slots::iterator at);
  void QueueEarlyLocked(Arrived arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InsertLocked(Arrived arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefuseLocked(Arrived arrived, HelloResult verdict, std::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogRefusalLocked(const Visitor& visitor, std::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<security::StreamSecurity> security_;
  const size_t max_early_, max_early_each_;
  const Duration early_timeout_;
  const decltype(ListenerOptions::wrap) wrap_;
  absl::Mutex mutex_;
  CondVar changed_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> refused_ ABSL_GUARDED_BY(mutex_);  // Refusals of each source.
  std::map<uint64_t, Generation> generations_ ABSL_GUARDED_BY(mutex_);
  std::list<EarlyConnection> early_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::transport
