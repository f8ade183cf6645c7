#include "common/web/http_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <thread>
#include <variant>

#include "common/base/logging.h"
#include "common/rpc/host.h"
#include "common/web/connection.h"

namespace muster::web {
namespace {

constexpr int kBacklog = 32;
// cpp-httplib recurses, so the stack that it needs grows with max_request_bytes. The default size
// depends on RLIMIT_STACK, and is only 2 MiB if that is unlimited. Unused pages of the stack need
// no memory.
constexpr size_t kStackBytes = 16 << 20;

// The connection that this thread serves.
thread_local Connection* current = nullptr;

bool SameText(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool IsOneOf(const std::vector<std::string>& tokens, std::string_view text) {
  bool found = false;
  for (const std::string& token : tokens) found |= SameText(token, text);
  return found;
}

// Returns the value of a cookie, "" if there is none.
std::string CookieOf(const httplib::Request& request, std::string_view name) {
  const std::string header = request.get_header_value("Cookie");
  std::string_view rest = header;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (pair.starts_with(' ')) pair.remove_prefix(1);
    if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=')
      return std::string(pair.substr(name.size() + 1));
  }
  return "";
}

// Returns the text of an event stream for one event.
std::string TextOf(const HttpEvent& event) {
  std::string text = fmt::format("id: {}\n", event.id);
  std::string_view rest = event.data;
  while (true) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    text += fmt::format("data: {}\n", rest.substr(0, end));
    if (end == rest.size()) return text + "\n";
    rest.remove_prefix(end + 1);
  }
}

uint64_t LastEventId(const httplib::Request& request) {
  const std::string text = request.get_header_value("Last-Event-ID");
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end == text.data() + text.size() ? id : 0;
}

void Refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(why + "\n", "text/plain; charset=utf-8");
}

// Binds and listens, without SO_REUSEPORT. Returns 0 or errno.
int Bind(const addrinfo& where, Fd* socket_fd) {
  Fd fd(socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where.ai_family == AF_INET6)
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd.get(), where.ai_addr, where.ai_addrlen) != 0 || listen(fd.get(), kBacklog) != 0)
    return errno;
  *socket_fd = std::move(fd);
  return 0;
}

absl::StatusOr<Fd> Listen(const HttpOptions& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints, &list) !=
      0)
    return ConfigurationError(
        fmt::format("status.address is '{}': it must be an IP address, such as 127.0.0.1, 0.0.0.0 "
                    "or ::",
                    options.address));
  const MonotonicTime start = Clock::now();
  Fd fd;
  int error = 0;
  while ((error = Bind(*list, &fd)) == EADDRINUSE && Clock::now() - start < options.bind_timeout)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  freeaddrinfo(list);
  if (error == 0) return fd;
  return ConfigurationError(fmt::format(
      "cannot listen on {}: {}{}", rpc::JoinHostPort(options.address, options.port),
      std::strerror(error),
      error == EADDRINUSE
          ? "; choose another status.port or status.metrics_port, or end the process that holds it"
          : ""));
}

// Uses cpp-httplib to parse requests and write responses, without its sockets and threads.
class Parser final : public httplib::Server {
 public:
  // Chunked responses end once this socket is invalid.
  explicit Parser(socket_t listener) { svr_sock_ = listener; }
  void Stop() { svr_sock_ = INVALID_SOCKET; }
  void Serve(Connection* connection) {
    bool closed = false;
    process_request(*connection, /*close_connection=*/true, closed,
                    [](httplib::Request& request) { request.ranges.clear(); });
  }
};

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpOptions& options, Fd listener)
      : options_(options),
        listener_(std::move(listener)),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        parser_(listener_.get()) {
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    parser_.set_payload_max_length(options_.max_request_bytes);
    parser_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, response);
          if (current != nullptr) current->SetDeadline(Clock::now() + options_.deadline);
          return httplib::Server::HandlerResponse::Handled;
        });
    parser_.set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
          Refuse(response, 500, "the request could not be answered");
        });
  }

  ~HttpServerImpl() override {
    parser_.Stop();
    const uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  }

  void Get(const std::string& path, Handler handler) override {
    routes_[path] = std::move(handler);
  }
  void Events(const std::string& path, EventSource source) override {
    routes_[path] = std::move(source);
  }
  void Start() override {
    // Block all signals, which other threads handle. With SIGPIPE blocked, a write to a closed TLS
    // connection fails instead of ending the process.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    const auto serve = [](void* self) -> void* {
      auto* const server = static_cast<HttpServerImpl*>(self);
      pthread_setname_np(pthread_self(), fmt::format("http-{}", server->port_).c_str());
      server->Serve();
      return nullptr;
    };
    for (int i = 0; i < options_.threads + options_.max_streams; ++i) {
      pthread_t thread;
      if (const int error = pthread_create(&thread, &attributes, serve, this); error != 0) {
        LogWarning("{} has {} of {} threads: {}", url(), i, options_.threads + options_.max_streams,
                   std::strerror(error));
        break;
      }
      threads_.push_back(thread);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  int port() const override { return port_; }
  std::string url() const override {
    const bool any = options_.address == "0.0.0.0" || options_.address == "::";
    return fmt::format("{}://{}", https() ? "https" : "http",
                       rpc::JoinHostPort(any ? rpc::ThisHost().name : options_.address, port_));
  }

 private:
  bool https() const { return options_.identity != nullptr && options_.identity->from_files(); }
  // The name of the cookie. Browsers send cookies to all ports of a host.
  std::string Cookie() const { return fmt::format("muster_{}", port_); }

  void Serve();
  void ServeConnection(Fd socket);
  bool HasAccess(const httplib::Request& request, httplib::Response& response) const;
  void Answer(const httplib::Request& request, httplib::Response& response);
  void Stream(const EventSource& source, const httplib::Request& request,
              httplib::Response& response);

  const HttpOptions options_;
  const Fd listener_, stop_;
  Parser parser_;
  int port_ = 0;
  std::map<std::string, std::variant<Handler, EventSource>> routes_;
  std::atomic<int> streams_ = 0;
  std::vector<pthread_t> threads_;
};

void HttpServerImpl::Serve() {
  pollfd polled[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (true) {
    // The second descriptor becomes readable when the server stops.
    if (poll(polled, 2, -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Without a free descriptor, the connection stays in the queue.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    try {
      ServeConnection(std::move(socket));
    } catch (const std::exception&) {
      // For example std::bad_alloc. The connection is closed.
    }
    current = nullptr;
  }
}

void HttpServerImpl::ServeConnection(Fd socket) {
  Connection connection(std::move(socket), stop_.get(), options_.max_request_bytes);
  connection.SetDeadline(Clock::now() + options_.deadline);
  if (https()) {
    absl::StatusOr<security::SslPtr> session = options_.identity->NewSession(/*server=*/true, "");
    if (!session.ok() || !connection.Handshake(*std::move(session)).ok()) return;
  }
  current = &connection;
  parser_.Serve(&connection);
  current = nullptr;
  connection.Finish();
}

bool HttpServerImpl::HasAccess(const httplib::Request& request, httplib::Response& response) const {
  // With certificates, the TLS handshake has checked the client.
  if (options_.identity == nullptr || https()) return true;
  const std::vector<std::string> tokens = options_.identity->ReadingTokens();
  constexpr std::string_view kBearer = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  if (header.starts_with(kBearer) &&
      IsOneOf(tokens, std::string_view(header).substr(kBearer.size())))
    return true;
  const std::string asked = request.get_param_value("token");
  if (IsOneOf(tokens, asked)) {
    response.set_header("Set-Cookie",
                        fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", Cookie(), asked));
    return true;
  }
  return IsOneOf(tokens, CookieOf(request, Cookie()));
}

void HttpServerImpl::Answer(const httplib::Request& request, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("X-Content-Type-Options", "nosniff");
  if (!HasAccess(request, response)) {
    response.set_header("WWW-Authenticate", "Bearer");
    return Refuse(response, 401,
                  "this requires the token that `muster key token` prints: send the header "
                  "Authorization: Bearer TOKEN, or add ?token=TOKEN to the address");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    return Refuse(response, 405, "only GET and HEAD are answered");
  }
  const auto route = routes_.find(request.path);
  if (route == routes_.end()) return Refuse(response, 404, "not found");
  if (const auto* source = std::get_if<EventSource>(&route->second))
    return Stream(*source, request, response);
  HttpRequest asked;
  asked.path = request.path;
  for (const auto& [key, value] : request.params)
    if (key != "token") asked.query.emplace(key, value);
  const HttpResponse answer = std::get<Handler>(route->second)(asked);
  response.status = answer.status;
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  response.set_content(answer.body, answer.type);
}

void HttpServerImpl::Stream(const EventSource& source, const httplib::Request& request,
                            httplib::Response& response) {
  if (streams_.fetch_add(1) >= options_.max_streams) {
    --streams_;
    response.set_header("Retry-After", "10");
    return Refuse(
        response, 503,
        fmt::format("{} clients are connected already; try again later", options_.max_streams));
  }
  // The response owns the provider, so `counted` is destroyed with the connection.
  const std::shared_ptr<void> counted(nullptr, [this](void*) { --streams_; });
  Connection* const connection = current;
  const auto provide = [this, counted, connection, source, after = LastEventId(request),
                        sent = Clock::now(),
                        first = true](size_t, httplib::DataSink& sink) mutable {
    std::string text;
    if (const std::optional<HttpEvent> event = source(after)) {
      after = event->id;
      text = TextOf(*event);
    } else if (first || Clock::now() - sent >= options_.keep_alive) {
      text = ":\n\n";
    } else {
      return connection->Rest(options_.event_interval);
    }
    first = false;
    sent = Clock::now();
    connection->SetDeadline(sent + options_.deadline);
    return sink.write(text.data(), text.size());
  };
  response.set_chunked_content_provider("text/event-stream", provide);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Make(const HttpOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(Fd listener, Listen(options));
  return std::make_unique<HttpServerImpl>(options, std::move(listener));
}

}  // namespace muster::web
