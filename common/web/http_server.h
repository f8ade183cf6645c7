// A small HTTP server for /metrics and the status page. It answers GET and HEAD on fixed paths, and
// sends server-sent events. It has its own threads, and each request has a deadline, so a slow or
// hostile client holds one thread for a limited time and never delays training.
//
// The threads are named "http-PORT", so that their processor time can be told from that of
// training.
//
// Who may read: see HttpOptions::identity. A request without access gets 401. Each connection
// carries one request.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/security/identity.h"
#include "muster/status.h"

namespace muster::web {

struct HttpRequest {
  std::string path;                          // Decoded, without the query: "/metrics".
  std::map<std::string, std::string> query;  // Decoded. Without "token".
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Additional headers.
};

// One server-sent event.
struct HttpEvent {
  uint64_t id = 0;   // Higher than that of earlier events.
  std::string data;  // Any text.
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // An IP address of this host, or "0.0.0.0" or "::".
  int port = 0;                       // 0: the kernel picks one.
  // How long to wait for a port that another process holds, such as this task's predecessor.
  Duration bind_timeout = std::chrono::seconds(5);
  // Null: everybody may read. With a run key, a request needs its token
  // (Identity::ReadingTokens): "Authorization: Bearer TOKEN", or "?token=TOKEN", which also sets a
  // cookie for a browser. With certificate files, the server speaks HTTPS, and a client needs a
  // certificate of one of the authorities that this process trusts.
  std::shared_ptr<security::Identity> identity;
  int threads = 4;      // Requests that are answered at once. More wait in the kernel.
  int max_streams = 0;  // Clients of event streams, in addition to `threads`. More get 503.
  // The limit for a client to send its request, and again to take the response. An event must be
  // taken within it too.
  Duration deadline = std::chrono::seconds(10);
  size_t max_request_bytes = 16 << 10;  // Request line, headers and body.
  // How often a stream asks its source. A comment is sent after `keep_alive` without an event.
  Duration event_interval = std::chrono::milliseconds(250);
  Duration keep_alive = std::chrono::seconds(10);
};

// Thread-safe after Start.
class HttpServer {
 public:
  // Handlers run on the server's threads, several at once. They must be thread-safe and quick.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Returns the next event with an id above `after`, or nullopt if there is none yet. `after` is 0
  // for a new client, and the id that a reconnecting browser has seen last otherwise.
  using EventSource = std::function<std::optional<HttpEvent>(uint64_t after)>;

  // Binds the port. Returns ConfigurationError if that is not possible.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Make(const HttpOptions& options);
  // Ends all requests and streams.
  virtual ~HttpServer() = default;

  // REQUIRES: Start was not called. `path` is compared as a whole.
  virtual void Get(const std::string& path, Handler handler) = 0;
  virtual void Events(const std::string& path, EventSource source) = 0;
  // Starts to answer.
  virtual void Start() = 0;

  virtual int port() const = 0;
  // Returns "http://127.0.0.1:9400", or with https. For "0.0.0.0" and "::", names this host.
  virtual std::string url() const = 0;
};

}  // namespace muster::web
