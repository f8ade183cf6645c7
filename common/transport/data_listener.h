// The one port on which a process takes data connections, for its whole life: generations come and
// go behind it. Also opens connections to other processes. A thread of its own reads hellos, so a
// peer that connects and says nothing, the wrong thing, or too much costs a closed socket and one
// log line. Never uses a proxy. All methods may be called from any thread.
//
// With security each connection is TLS 1.3 with certificates of both sides, on which the hello
// comes: nothing is held for who has not shown one.
//
// A connection whose generation is newer than any admitted one is held, with a bound on number and
// time, until this process begins to form that generation; one for a past generation is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/security/stream_security.h"
#include "common/transport/data_connection.h"
#include "common/transport/hello.h"
#include "muster/status.h"

namespace muster::transport {

struct ListenerOptions {
  std::string bind_address;    // a numeric address of this host; empty: all of them
  std::string advertise_host;  // what address() says; empty: bind_address, else the loopback
  Duration hello_timeout = std::chrono::seconds(5);  // the handshake included
  Duration hold_timeout = std::chrono::seconds(60);
  // Connections that have not yet said hello, in all and of one address (of IPv6: one network).
  // Those who have shown least give way, the oldest first.
  size_t max_silent = 256, max_silent_each = 64;
  // Early connections, in all and of one task, or, without security, of one address.
  size_t max_held = 256, max_held_each = 128;
  std::shared_ptr<security::StreamSecurity> security;  // null: plain TCP
  // What the stream of each connection is put into (faulty_links.h); empty: nothing.
  std::function<std::unique_ptr<ByteStream>(std::unique_ptr<ByteStream>)> wrap;
};

// A connection being opened. Dropping it cancels.
class Dialing {
 public:
  virtual ~Dialing() = default;
  // Empty while under way. The connection can be taken once.
  virtual std::optional<absl::StatusOr<std::unique_ptr<DataConnection>>> TakeResult() = 0;
};

// For Admit: connections are let in whoever they are meant for; the taker looks at their `to`.
inline constexpr int kAnyone = -1;

// While it lives, connections with this ticket are let in; when it goes its generation is past.
class Admission {
 public:
  virtual ~Admission() = default;
  // The connection that `from` opened, null if it has not come (yet).
  virtual std::unique_ptr<DataConnection> Take(int from, uint32_t channel) = 0;
  // One that nobody has taken yet, whoever opened it; null if there is none.
  virtual std::unique_ptr<DataConnection> TakeAny() = 0;
};

struct DialRequest {
  std::string address;  // "host:port"
  Hello hello;
  MonotonicTime deadline;
  std::string peer;  // the task that is to be there ("worker:1"), where security tells; empty: any
};

class DataListener {
 public:
  // ConfigurationError when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<DataListener>> Create(const ListenerOptions& options);
  virtual ~DataListener() = default;

  virtual std::string address() const = 0;  // "10.0.0.3:41234"

  // Lets in the connections of `generation` that are meant for `to` (or kAnyone) and hold `ticket`,
  // those that came early included. REQUIRES: no other admission for this generation lives.
  virtual std::unique_ptr<Admission> Admit(uint64_t generation, int to,
                                           const std::string& ticket) = 0;
  // Connects, says hello and waits for the answer. PeerLost when refused or unreachable, with the
  // reason. Where the other side is there and only has no room for one more connection, dials
  // again until the deadline.
  virtual std::unique_ptr<Dialing> Dial(const DialRequest& request) = 0;

  // Sleeps until a connection came in or a dial ended since `*seen` (updated), or `limit` passed.
  virtual void WaitForChange(uint64_t* seen, Duration limit) = 0;
};

}  // namespace muster::transport
