// A small HTTP server for /metrics and the status page. It answers GET and HEAD on fixed paths, and
// sends server-sent events. The server has its own threads, and each request has a deadline. A slow
// or hostile client therefore occupies one thread for a limited time and never delays training.
//
// The threads are named "http-PORT", so that tools such as top show their CPU time separately.
//
// HttpOptions::identity restricts access. If access needs a token, a request without a valid token
// gets status 401. Each connection carries one request.
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
  std::string path;                          // URL-decoded, without the query: "/metrics".
  std::map<std::string, std::string> query;  // URL-decoded. Does not contain "token".
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Additional headers.
};

// One server-sent event.
struct HttpEvent {
  uint64_t id = 0;   // Higher than the ids of earlier events.
  std::string data;  // Any text.
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // An IP address of this host, or "0.0.0.0" or "::".
  int port = 0;                       // 0: the kernel picks one.
  // Maximum time for which Make retries while the port is in use, for example by an earlier process
  // of this task.
  Duration bind_timeout = std::chrono::seconds(5);
  // If null, every client may read.
  //
  // With a run key, a request needs one of Identity::ReadingTokens. The client sends the token as
  // "Authorization: Bearer TOKEN" or as "?token=TOKEN". The response to the second form sets a
  // cookie, so that a browser needs the token only once.
  //
  // With certificate files, the server speaks HTTPS. A client needs a certificate of an authority
  // that this process trusts.
  std::shared_ptr<security::Identity> identity;
  int threads = 4;  // Maximum number of concurrent requests. Further requests wait in the kernel.
  // Maximum number of clients of event streams. These clients use threads in addition to `threads`.
  // Further clients get status 503.
  int max_streams = 0;
  // Time limit for each of these: receiving a request, sending its response and sending one event.
  Duration deadline = std::chrono::seconds(10);
  size_t max_request_bytes = 16 << 10;  // Maximum size of request line, headers and body together.
  // The interval at which an event stream asks its source for events.
  Duration event_interval = std::chrono::milliseconds(250);
  // An event stream sends a comment when it has sent no event for this time.
  Duration keep_alive = std::chrono::seconds(10);
};

// Thread-safe after Start.
class HttpServer {
 public:
  // A handler runs on the server's threads, possibly on several threads at the same time. A handler
  // must not block.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Returns the next event with an id above `after`, or nullopt if no such event exists yet.
  // `after` is 0 for a new client. For a reconnecting browser, `after` is the id of the last event
  // that the browser received.
  using EventSource = std::function<std::optional<HttpEvent>(uint64_t after)>;

  // Binds the port. Returns ConfigurationError if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Make(const HttpOptions& options);
  // Ends all requests and streams.
  virtual ~HttpServer() = default;

  // Get and Events set the handler of requests whose whole path is `path`. REQUIRES: Start was not
  // called.
  virtual void Get(const std::string& path, Handler handler) = 0;
  virtual void Events(const std::string& path, EventSource source) = 0;
  // Starts to accept connections.
  virtual void Start() = 0;

  virtual int port() const = 0;
  // Returns for example "http://127.0.0.1:9400", or an https URL. If the address is "0.0.0.0" or
  // "::", the URL contains this host's name.
  virtual std::string url() const = 0;
};

}  // namespace muster::web
