// A small HTTP server for /metrics and the status page. It answers GET and HEAD on fixed paths, and
// sends server-sent events. It has its own threads, and each request has a deadline. A slow or
// hostile client therefore occupies one thread for a limited time and never delays training.
//
// The threads are named "http-PORT", so that their processor time can be separated from that of
// training.
//
// HttpOptions::identity restricts access. A request without access receives status 401. Each
// connection carries one request.
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
  // Timeout for a port that another process holds, such as an earlier process of this task.
  Duration bind_timeout = std::chrono::seconds(5);
  // Null: every client may read. With a run key, a request needs its token
  // (Identity::ReadingTokens): "Authorization: Bearer TOKEN", or "?token=TOKEN", which also sets a
  // cookie for a browser. With certificate files, the server speaks HTTPS, and a client needs a
  // certificate of one of the authorities that this process trusts.
  std::shared_ptr<security::Identity> identity;
  int threads = 4;      // Concurrent requests. More wait in the kernel.
  int max_streams = 0;  // Clients of event streams, beyond `threads`. More get 503.
  // Timeout for a client to send its request, and again to receive the response. Each event has the
  // same timeout.
  Duration deadline = std::chrono::seconds(10);
  size_t max_request_bytes = 16 << 10;  // Request line, headers and body.
  // How often a stream polls its source. After `keep_alive` without an event, the stream sends a
  // comment.
  Duration event_interval = std::chrono::milliseconds(250);
  Duration keep_alive = std::chrono::seconds(10);
};

// Thread-safe after Start.
class HttpServer {
 public:
  // Handlers run on the server's threads, several at once. They must be thread-safe and quick.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Returns the next event with an id above `after`, or nullopt if no such event exists yet.
  // `after` is 0 for a new client. For a reconnecting browser it is the id of the last event that
  // the browser received.
  using EventSource = std::function<std::optional<HttpEvent>(uint64_t after)>;

  // Binds the port. Returns ConfigurationError if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Make(const HttpOptions& options);
  // Ends all requests and streams.
  virtual ~HttpServer() = default;

  // Both set the handler of a path. `path` must match the whole path of a request. REQUIRES: Start
  // was not called.
  virtual void Get(const std::string& path, Handler handler) = 0;
  virtual void Events(const std::string& path, EventSource source) = 0;
  // Starts to accept connections.
  virtual void Start() = 0;

  virtual int port() const = 0;
  // Returns for example "http://127.0.0.1:9400", or an https URL. Contains this host's name if the
  // address is "0.0.0.0" or "::".
  virtual std::string url() const = 0;
};

}  // namespace muster::web
