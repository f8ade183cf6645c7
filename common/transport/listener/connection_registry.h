// Stores the incoming connections of a DataListener (data_listener.h) until a caller takes them. A
// connection is stored after its hello has been read. The hello is the first message of a
// connection, and names the connection's generation (hello.h). The DataListener and its Admission
// and Dialing objects share one ConnectionRegistry, because these objects may outlive the
// DataListener. Thread-safe.
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
#include "common/transport/listener/data_listener.h"

namespace muster::transport {

// The peer of an incoming connection.
struct Visitor {
  std::string remote;  // "10.0.0.4:5123".
  std::string source;  // The IPv4 address, or the /64 network of an IPv6 address.
  std::string peer;    // The task in the peer's certificate. Empty without a certificate.
};

class ConnectionRegistry {
 public:
  using Key = std::pair<int, uint32_t>;  // Hello::from and Hello::channel.
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

  // Accepts or refuses a connection, and answers its hello. If the connection's generation is
  // higher than all admitted generations, holds the connection and does not answer yet.
  void Route(Arrived arrived);
  // Implements DataListener::Admit. Also accepts the held connections of `generation`.
  void Admit(uint64_t generation, int to, const std::string& ticket);
  // Ends the admission of `generation`, and closes the connections that no caller has taken.
  void Leave(uint64_t generation);
  // Return an accepted connection of `generation`, or null if there is none.
  std::unique_ptr<DataConnection> Take(uint64_t generation, Key key);
  std::unique_ptr<DataConnection> TakeAny(uint64_t generation);
  // Logs that the listener has closed a connection before its hello was read. Limits the number of
  // log lines.
  void Refused(const Visitor& visitor, std::string_view why);
  // Wakes WaitForChange.
  void Changed();
  // Implements DataListener::WaitForChange.
  void WaitForChange(uint64_t* seen, Duration limit);

 private:
  using Slots = std::map<Key, std::list<Arrived>>;  // No list is empty.
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
  std::map<std::string, uint64_t> refused_ ABSL_GUARDED_BY(mutex_);  // Refusals by source.
  std::map<uint64_t, Generation> generations_ ABSL_GUARDED_BY(mutex_);
  std::list<EarlyConnection> early_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::transport
