// The accept loop in front of gRPC, which has none of these limits: how many connections there are
// in all, how many of strangers, and for how long one may be silent. A descriptor, or memory, that
// is not there costs one connection and a line in the log.
//
// A connection is *proven* once a call of its has come that only a peer may make (Proved below):
// with TLS that is who it says; without, it speaks gRPC at least. Others are strangers. Strangers
// give way to newcomers, the oldest of the source that has most of them first: there is always room
// for a member, which makes its call within milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::rpc {

struct ConnectionLimits {
  int most = 1024;           // in all
  int most_of_source = 768;  // of one address (IPv6: of its /64), where there is no TLS
  int most_strangers = 256;  // in all
  int most_plaintext = 16;   // with TLS: those that speak plaintext
  Duration first_byte = std::chrono::seconds(5);
};

// For a server that `peers` processes talk to, in a process that may open `descriptors` files. Each
// connection takes two of them; half of what there is stays for the rest of the process.
ConnectionLimits LimitsFor(int64_t descriptors, int peers);

struct AcceptorOptions {
  ConnectionLimits limits;
  bool tls = false;  // what does not begin as TLS does goes to `take` as plaintext
  std::string name;  // "host:port" for the log
};

// All methods may be called from any thread.
class Acceptor {
 public:
  // Takes a connection that has said something: nonblocking, closed with exec. Called on the
  // acceptor's thread; must not block.
  using Take = std::function<void(Fd connection, bool plaintext)>;

  static std::unique_ptr<Acceptor> Make(std::vector<Fd> listeners, AcceptorOptions options);
  virtual ~Acceptor() = default;  // Stop()

  virtual absl::Status Start(Take take) = 0;  // once

  // A call that only a peer may make came over the connection that gRPC names so.
  virtual void Proved(std::string_view peer) = 0;
  // The ports are free when it returns. Connections that were taken stay.
  virtual void Stop() = 0;

  struct Counts {
    int strangers = 0, proven = 0, plaintext = 0;
    int64_t accepted = 0;
    int64_t silent = 0;       // closed: no byte in time
    int64_t gave_way = 0;     // closed for newcomers
    int64_t turned_away = 0;  // newcomers for which there was no room
    int64_t failed = 0;       // no descriptor, or no memory
  };
  virtual Counts counts() const = 0;
};

}  // namespace muster::rpc
