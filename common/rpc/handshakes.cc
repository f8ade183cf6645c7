#include "common/rpc/handshakes.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <charconv>
#include <deque>
#include <map>
#include <new>
#include <utility>

#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/suppressed.h"
#include "common/security/refusal.h"

namespace muster::rpc {
namespace {

constexpr char kPrefix[] = "c", kSuffix[] = ".muster";
constexpr char kSeen[] =
    "it ended the connection when it had seen this process's certificate: its own log says why";
constexpr Duration kLine = std::chrono::seconds(10);

thread_local const std::shared_ptr<HandshakeNote>* of_this_thread = nullptr;

// The servers to which this process has channels.
class Servers {
 public:
  static Servers& Get() {
    static auto* const servers = new Servers;
    return *servers;
  }
  std::string NameOf(const std::string& address, const std::string& task) {
    absl::MutexLock lock(&mu_);
    const auto [at, made] = by_server_.try_emplace({address, task}, servers_.size());
    if (made) servers_.emplace_back(fmt::format("{} ({})", task, address));
    return fmt::format("{}{}{}", kPrefix, at->second, kSuffix);
  }
  std::string Failed(const std::string& address, const std::string& task) {
    absl::MutexLock lock(&mu_);
    const auto found = by_server_.find({address, task});
    if (found == by_server_.end()) return "";
    const Server& server = servers_[found->second];
    return Clock::now() - server.failed < 2 * kLine ? server.why : "";
  }
  void Succeeded(std::string_view name) {
    absl::MutexLock lock(&mu_);
    if (Server* const server = Find(name)) server->why.clear();
  }
  // Logs a failed handshake with the server of `name`. kSeen is not logged if this side has ended
  // the connection.
  void Log(std::string_view name, std::string_view why, bool ended_here = false) {
    absl::MutexLock lock(&mu_);
    Server* const found = Find(name);
    if (found == nullptr) return;
    Server& server = *found;
    if (std::exchange(server.ended_here, ended_here) && why == kSeen) return;
    server.why = SanitizePeerText(why);
    server.failed = Clock::now();
    int64_t before = 0;
    if (!server.line.Take(&before)) return;
    LogWarning("cannot connect to {}: {}{}", server.name, server.why, SuppressedText(before));
  }

 private:
  struct Server {
    explicit Server(std::string name) : name(std::move(name)) {}
    const std::string name;
    LogRateLimiter line{1, kLine};
    bool ended_here = false;
    std::string why;  // Of the last failed handshake.
    MonotonicTime failed;
  };
  Server* Find(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return nullptr;
    name.remove_prefix(sizeof kPrefix - 1);
    name.remove_suffix(sizeof kSuffix - 1);
    size_t index = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), index).ec != std::errc())
      return nullptr;
    return index < servers_.size() ? &servers_[index] : nullptr;
  }

  absl::Mutex mu_;
  std::map<std::pair<std::string, std::string>, size_t> by_server_ ABSL_GUARDED_BY(mu_);
  std::deque<Server> servers_ ABSL_GUARDED_BY(mu_);
};

struct Session {
  std::shared_ptr<HandshakeNote> note;  // Null: the session of a channel.
  std::string name;                     // The HandshakeNameOf of the channel's server.
  bool shown = false;   // The channel has sent its certificate, and no data has arrived since.
  bool failed = false;  // A reason was reported.

  void ShowFailure(const std::string& why) {
    failed = true;
    note != nullptr ? note->Set(why) : Servers::Get().Log(name, why);
  }
};

void OnHandshakeMessage(bool sent, int message, SSL* ssl, Session& session) {
  const bool server = session.note != nullptr;
  if (sent && message == SSL3_MT_CLIENT_HELLO) {
    const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    session.name = name == nullptr ? "" : name;
  }
  // Earlier versions of TLS send the messages in another order.
  if (message != SSL3_MT_FINISHED || SSL_version(ssl) != TLS1_3_VERSION) return;
  if (server) session.note->SetProvisional(sent ? kSeen : "");
  if (!server && sent) session.shown = true;
}

void TakeMessage(int sent, int type, const unsigned char* what, size_t size, SSL* ssl,
                 Session& session) {
  if (type == SSL3_RT_HANDSHAKE) OnHandshakeMessage(sent != 0, what[0], ssl, session);
  if (type == SSL3_RT_ALERT && size > 1 && what[0] == SSL3_AL_FATAL)
    session.ShowFailure(security::HandshakeText(sent != 0, what[1], SSL_get_verify_result(ssl)));
  // Once data arrives, the other side has accepted this side's certificate.
  const bool data = type == SSL3_RT_INNER_CONTENT_TYPE && what[0] == SSL3_RT_APPLICATION_DATA;
  if (!data || sent != 0) return;
  session.shown = false;
  if (session.note == nullptr) Servers::Get().Succeeded(session.name);
  SSL_set_msg_callback(ssl, nullptr);
}

// OpenSSL calls the following functions on threads of gRPC. No exception may leave them. Without
// memory, a reason is not reported.
void OnMessage(int sent, int, int type, const void* bytes, size_t size, SSL* ssl, void* argument) {
  if (size == 0) return;
  try {
    TakeMessage(sent, type, static_cast<const unsigned char*>(bytes), size, ssl,
                *static_cast<Session*>(argument));
  } catch (const std::bad_alloc&) {
  }
}

void OnSession(void* object, void*, CRYPTO_EX_DATA* data, int slot, long, void*) {
  auto* ssl = static_cast<SSL*>(object);
  // Data connections report their errors themselves.
  if (SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)) != nullptr) return;
  std::unique_ptr<Session> session(new (std::nothrow) Session);
  if (session == nullptr || CRYPTO_set_ex_data(data, slot, session.get()) == 0) return;
  if (of_this_thread != nullptr) session->note = *of_this_thread;
  SSL_set_msg_callback(ssl, OnMessage);
  SSL_set_msg_callback_arg(ssl, session.release());  // OnSessionGone deletes it.
}

void OnSessionGone(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) {
  const std::unique_ptr<Session> session(static_cast<Session*>(data));
  if (session == nullptr || !session->shown || session->failed) return;
  try {
    session->ShowFailure(kSeen);
  } catch (const std::bad_alloc&) {
  }
}

void Listen() {
  [[maybe_unused]] static const int slot =
      CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL, 0, nullptr, OnSession, nullptr, OnSessionGone);
}

}  // namespace

void HandshakeNote::Set(std::string why) {
  absl::MutexLock lock(&mu_);
  if (why_.empty()) why_ = std::move(why);
}

void HandshakeNote::SetProvisional(std::string why) {
  absl::MutexLock lock(&mu_);
  meanwhile_ = std::move(why);
}

std::string HandshakeNote::why() const {
  absl::MutexLock lock(&mu_);
  return why_.empty() ? meanwhile_ : why_;
}

HandshakeOf::HandshakeOf(std::shared_ptr<HandshakeNote> note) : note_(std::move(note)) {
  Listen();
  of_this_thread = note_ == nullptr ? nullptr : &note_;
}

HandshakeOf::~HandshakeOf() { of_this_thread = nullptr; }

std::string HandshakeNameOf(const std::string& address, const std::string& task) {
  Listen();
  return Servers::Get().NameOf(address, task);
}

std::string FailedHandshake(const std::string& address, const std::string& task) {
  return Servers::Get().Failed(address, task);
}

void LogHandshake(std::string_view name, std::string_view why) {
  Servers::Get().Log(name, why, /*ended_here=*/true);
}

}  // namespace muster::rpc
