#include "common/web/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "common/base/files/fd.h"
#include "tests/unit/rpc/identities.h"

namespace muster::web {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Fd Connect(int port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

void Send(const Fd& fd, std::string_view text) {
  (void)!send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

// Reads until the server closes, for at most `limit`, or until `until` came.
std::string Read(const Fd& fd, std::string_view until = "",
                 Duration limit = std::chrono::minutes(1)) {
  std::string text;
  const MonotonicTime end = Clock::now() + limit;
  while (until.empty() || text.find(until) == std::string::npos) {
    pollfd polled{fd.get(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) <= 0) break;
    char piece[4096];
    const ssize_t got = recv(fd.get(), piece, sizeof piece, 0);
    if (got <= 0) break;
    text.append(piece, got);
  }
  return text;
}

std::string Exchange(int port, std::string_view request) {
  const Fd fd = Connect(port);
  Send(fd, request);
  return Read(fd);
}

std::string GetText(int port, const std::string& target, const std::string& headers = "") {
  return Exchange(port, "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
}

HttpResponse Text(const std::string& body) {
  HttpResponse response;
  response.body = body;
  return response;
}

class HttpServerTest : public ::testing::Test {
 protected:
  void Serve(HttpOptions options = {}) {
    auto made = HttpServer::Make(options);
    ASSERT_TRUE(made.ok()) << made.status();
    server_ = *std::move(made);
    server_->Get("/metrics", [](const HttpRequest& request) {
      HttpResponse response;
      response.body = "steps 7\n";
      for (const auto& [key, value] : request.query) response.body += key + "=" + value + "\n";
      response.headers = {{"X-Own", "yes"}};
      return response;
    });
    server_->Get("/throws", [](const HttpRequest&) -> HttpResponse {
      throw std::runtime_error("secret detail");
    });
    server_->Events("/events", [this](uint64_t after) -> std::optional<HttpEvent> {
      const uint64_t newest = newest_;
      if (after >= newest) return std::nullopt;
      return HttpEvent{newest, "event " + std::to_string(newest) + "\nsecond line"};
    });
    server_->Start();
  }
  int port() const { return server_->port(); }

  std::atomic<uint64_t> newest_ = 1;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAPath) {
  Serve();
  EXPECT_THAT(GetText(port(), "/metrics?a=%41&b"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("steps 7\na=A\nb=\n"),
                    HasSubstr("X-Own: yes"), HasSubstr("Cache-Control: no-store"),
                    HasSubstr("Connection: close")));
  EXPECT_THAT(server_->url(), StartsWith("http://127.0.0.1:"));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Serve();
  EXPECT_THAT(Exchange(port(), "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK"), Not(HasSubstr("steps"))));
}

TEST_F(HttpServerTest, OtherPathsAndMethodsAreRefused) {
  Serve();
  EXPECT_THAT(GetText(port(), "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(GetText(port(), "/metrics/../metrics"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Exchange(port(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD")));
  EXPECT_THAT(Exchange(port(), "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpServerTest, AHandlersExceptionStaysInside) {
  Serve();
  EXPECT_THAT(GetText(port(), "/throws"),
              AllOf(StartsWith("HTTP/1.1 500"), Not(HasSubstr("secret"))));
}

TEST_F(HttpServerTest, HostileRequestsEndAndOthersAreServed) {
  Serve();
  const std::string long_line(100000, 'a');
  std::string many_headers = "GET /metrics HTTP/1.1\r\n";
  for (int i = 0; i < 5000; ++i) many_headers += "X-" + std::to_string(i) + ": y\r\n";
  for (const std::string& request :
       {std::string("\r\n\r\n"), std::string("\0\0\0\0", 4), std::string("GET\r\n\r\n"),
        std::string("GET /metrics HTTP/9.9\r\n\r\n"), "GET /" + long_line + " HTTP/1.1\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nX: " + long_line + "\r\n\r\n", many_headers + "\r\n",
        std::string("GET /%zz%00 HTTP/1.1\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\nRange: bytes=0-0,0-0,0-0,1-,-1\r\n\r\n"),
        std::string("GET /metrics HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n"),
        std::string("POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)}) {
    const Fd hostile = Connect(port());
    Send(hostile, request);
    shutdown(hostile.get(), SHUT_WR);  // A client that sends more would wait for the deadline.
    EXPECT_THAT(Read(hostile), Not(HasSubstr("secret")));
    EXPECT_THAT(GetText(port(), "/metrics"), HasSubstr("steps 7")) << request.substr(0, 60);
  }
}

// Gives new threads the stack that glibc gives them where RLIMIT_STACK is unlimited. glibc reads
// the limit once, when the process starts.
class SmallStacks {
 public:
  SmallStacks() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 2 << 20);
    EXPECT_EQ(pthread_setattr_default_np(&small), 0);
    pthread_attr_destroy(&small);
  }
  ~SmallStacks() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(HttpServerTest, RangesAreNotParsed) {
  const SmallStacks small;
  const rpc::TestIdentities identities;
  HttpOptions options;
  options.identity = identities.Of("chief:0");
  Serve(options);
  // cpp-httplib refuses a line of more than 8192 bytes, and reads others as a whole.
  std::string ranges = "0-";
  while (ranges.size() < 8100) ranges += ",1-";
  for (const std::string name : {"Range", "rANGE", "range\t"})
    EXPECT_THAT(GetText(port(), "/metrics", "A: b\r\n" + name + ": bytes=" + ranges + "\r\n"),
                StartsWith("HTTP/1.1 401"));
  ranges.append(4000, '9');
  EXPECT_THAT(GetText(port(), "/metrics", "Range: bytes=" + ranges + "\r\n"),
              StartsWith("HTTP/1.1 400"));
  // A client without access cannot make the server complain of its ranges.
  EXPECT_THAT(GetText(port(), "/metrics", "Range: none\r\n"), StartsWith("HTTP/1.1 401"));
}

TEST_F(HttpServerTest, ARequestThatIsTooLongIsNotReadToItsEnd) {
  HttpOptions options;
  options.max_request_bytes = 1000;
  Serve(options);
  std::string request = "GET /metrics HTTP/1.1\r\n";
  for (int i = 0; i < 100; ++i) request += "X-" + std::to_string(i) + ": yyyyyyyyyyyy\r\n";
  EXPECT_THAT(Exchange(port(), request + "\r\n"), Not(HasSubstr("steps 7")));
}

TEST_F(HttpServerTest, ASlowClientIsCutOffAtTheDeadline) {
  HttpOptions options;
  options.threads = 1;
  options.deadline = std::chrono::milliseconds(500);
  Serve(options);
  const Fd slow = Connect(port());
  std::atomic<bool> done = false;
  std::thread drip([&] {
    while (!done) {
      Send(slow, "G");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(GetText(port(), "/metrics"), HasSubstr("steps 7"));
  done = true;
  drip.join();
}

TEST_F(HttpServerTest, AClientThatTakesNoResponseIsCutOff) {
  HttpOptions options;
  options.threads = 1;
  options.deadline = std::chrono::milliseconds(500);
  auto made = HttpServer::Make(options);
  ASSERT_TRUE(made.ok());
  server_ = *std::move(made);
  server_->Get("/large", [](const HttpRequest&) {
    HttpResponse response;
    response.type = "application/octet-stream";
    response.body.assign(64 << 20, 'x');
    return response;
  });
  server_->Get("/small", [](const HttpRequest&) { return Text("small"); });
  server_->Start();
  const Fd lazy = Connect(port());
  Send(lazy, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(GetText(port(), "/small"), HasSubstr("small"));
}

TEST_F(HttpServerTest, SendsEvents) {
  HttpOptions options;
  options.max_streams = 1;
  options.event_interval = std::chrono::milliseconds(10);
  Serve(options);
  const Fd fd = Connect(port());
  Send(fd, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(Read(fd, "second line"),
              AllOf(HasSubstr("Content-Type: text/event-stream"),
                    HasSubstr("id: 1\ndata: event 1\ndata: second line\n")));
  newest_ = 5;
  EXPECT_THAT(Read(fd, "event 5"), HasSubstr("id: 5\n"));
  EXPECT_THAT(GetText(port(), "/events"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(GetText(port(), "/metrics"), HasSubstr("steps 7"));
}

TEST_F(HttpServerTest, ABrowserGoesOnAfterTheEventThatItSaw) {
  HttpOptions options;
  options.max_streams = 1;
  options.event_interval = std::chrono::milliseconds(10);
  options.keep_alive = std::chrono::milliseconds(50);
  Serve(options);
  const Fd fd = Connect(port());
  Send(fd, "GET /events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1\r\n\r\n");
  EXPECT_THAT(Read(fd, ":\n\n"), Not(HasSubstr("event 1")));
  EXPECT_THAT(Read(fd, ":\n\n"), HasSubstr(":\n\n"));
}

TEST_F(HttpServerTest, AStreamWhoseClientLeftMakesRoom) {
  HttpOptions options;
  options.max_streams = 1;
  options.event_interval = std::chrono::milliseconds(10);
  Serve(options);
  for (int i = 0; i < 3; ++i) {
    std::string answer;
    // The server notices that a client has left when it writes the next event.
    const MonotonicTime deadline = Clock::now() + std::chrono::minutes(1);
    while (answer.find("event 1") == std::string::npos && Clock::now() < deadline) {
      const Fd fd = Connect(port());
      Send(fd, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
      answer = Read(fd, "event 1", std::chrono::seconds(2));
    }
    EXPECT_THAT(answer, HasSubstr("event 1"));
  }
}

TEST_F(HttpServerTest, EndsWithAStreamOpen) {
  HttpOptions options;
  options.max_streams = 1;
  options.event_interval = std::chrono::minutes(3);
  Serve(options);
  const Fd fd = Connect(port());
  Send(fd, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  Read(fd, "second line");
  const MonotonicTime start = Clock::now();
  server_.reset();
  EXPECT_LT(Clock::now() - start, std::chrono::minutes(1));
}

TEST_F(HttpServerTest, WithARunKeyATokenIsNeeded) {
  const rpc::TestIdentities identities, others;
  HttpOptions options;
  options.identity = identities.Of("chief:0");
  Serve(options);
  const std::string token = options.identity->ReadingTokens().at(0);
  const std::string other = others.Of("chief:0")->ReadingTokens().at(0);
  EXPECT_EQ(token.size(), 64);
  EXPECT_THAT(GetText(port(), "/metrics"),
              AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer"),
                    Not(HasSubstr("steps"))));
  EXPECT_THAT(GetText(port(), "/nothing"), StartsWith("HTTP/1.1 401"));
  for (const std::string& wrong : {other, token.substr(1), token + "0", std::string()}) {
    EXPECT_THAT(GetText(port(), "/metrics", "Authorization: Bearer " + wrong + "\r\n"),
                StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(GetText(port(), "/metrics?token=" + wrong), StartsWith("HTTP/1.1 401"));
  }
  EXPECT_THAT(GetText(port(), "/metrics", "Authorization: Bearer " + token + "\r\n"),
              AllOf(HasSubstr("steps 7"), Not(HasSubstr("Set-Cookie"))));
  const std::string cookie = "muster_" + std::to_string(port()) + "=" + token;
  EXPECT_THAT(GetText(port(), "/metrics?token=" + token),
              AllOf(EndsWith("\r\n\r\nsteps 7\n"),
                    HasSubstr("Set-Cookie: " + cookie + "; Path=/; HttpOnly; SameSite=Strict")));
  EXPECT_THAT(GetText(port(), "/metrics", "Cookie: a=b; " + cookie + "\r\n"), HasSubstr("steps 7"));
  EXPECT_THAT(GetText(port(), "/metrics", "Cookie: muster_1=" + token + "\r\n"),
              StartsWith("HTTP/1.1 401"));
}

// A TLS client that trusts everybody and shows the certificate of `identity`, or none.
std::string GetOverTls(int port, security::Identity* identity) {
  const Fd fd = Connect(port);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()),
                                                                  SSL_CTX_free);
  security::SslPtr ssl;
  if (identity != nullptr) {
    auto session = identity->NewSession(false, "");
    EXPECT_TRUE(session.ok());
    ssl = *std::move(session);
    SSL_set_verify(ssl.get(), SSL_VERIFY_NONE, nullptr);
  } else {
    ssl.reset(SSL_new(context.get()));
    SSL_set_connect_state(ssl.get());
  }
  SSL_set_fd(ssl.get(), fd.get());
  if (SSL_connect(ssl.get()) != 1) return "";
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  if (SSL_write(ssl.get(), request.data(), static_cast<int>(request.size())) <= 0) return "";
  std::string text;
  char piece[4096];
  for (int got; (got = SSL_read(ssl.get(), piece, sizeof piece)) > 0;) text.append(piece, got);
  return text;
}

// An identity from files, as `muster key certificates` writes them.
std::shared_ptr<security::Identity> FromFiles(const security::Authority& authority,
                                              const std::string& folder, const std::string& task) {
  const auto made = authority.Issue(security::UriOf({"0123456789abcdef", task}), {"127.0.0.1"});
  EXPECT_TRUE(made.ok());
  security::IdentityOptions options;
  options.self = {"0123456789abcdef", task};
  options.files = {folder + "/" + task + ".pem", folder + "/" + task + ".key",
                   folder + "/" + task + ".authority"};
  EXPECT_TRUE(security::WriteNewFile(options.files.certificate, made->certificate, 0644).ok());
  EXPECT_TRUE(security::WriteNewFile(options.files.key, made->key, 0600).ok());
  EXPECT_TRUE(security::WriteNewFile(options.files.authority, authority.certificate(), 0644).ok());
  auto identity = security::Identity::Make(options);
  EXPECT_TRUE(identity.ok()) << identity.status();
  return *std::move(identity);
}

TEST_F(HttpServerTest, WithCertificatesOnlyThoseOfTheAuthorityAreServed) {
  std::string folder = std::filesystem::temp_directory_path() / "muster-web-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto authority = security::Authority::Random(), stranger = security::Authority::Random();
  ASSERT_TRUE(authority.ok() && stranger.ok());
  HttpOptions options;
  options.identity = FromFiles(*authority, folder, "chief:0");
  Serve(options);
  EXPECT_THAT(server_->url(), StartsWith("https://"));
  const auto member = FromFiles(*authority, folder, "worker:0");
  EXPECT_THAT(GetOverTls(port(), member.get()), HasSubstr("steps 7"));
  EXPECT_EQ(GetOverTls(port(), FromFiles(*stranger, folder, "worker:1").get()), "");
  EXPECT_EQ(GetOverTls(port(), nullptr), "");
  EXPECT_THAT(GetText(port(), "/metrics"), Not(HasSubstr("steps")));
  EXPECT_THAT(GetOverTls(port(), member.get()), HasSubstr("steps 7"));
  std::filesystem::remove_all(folder);
}

TEST_F(HttpServerTest, BadAddressesAndBusyPortsAreNamed) {
  HttpOptions options;
  options.address = "example.test";
  EXPECT_THAT(std::string(Message(HttpServer::Make(options).status())),
              HasSubstr("status.address is 'example.test': it must be an IP address"));
  Serve();
  HttpOptions same;
  same.port = port();
  same.bind_timeout = std::chrono::milliseconds(1);
  const auto second = HttpServer::Make(same);
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr("choose another status.port"));
}

TEST_F(HttpServerTest, AnswersOnIpv6) {
  HttpOptions options;
  options.address = "::";
  auto made = HttpServer::Make(options);
  if (!made.ok()) GTEST_SKIP() << "this host has no IPv6: " << made.status();
  server_ = *std::move(made);
  server_->Get("/metrics", [](const HttpRequest&) { return Text("six"); });
  server_->Start();
  EXPECT_THAT(GetText(port(), "/metrics"), HasSubstr("six"));
}

}  // namespace
}  // namespace muster::web
