#include "common/rpc/server/acceptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/suppressed.h"
#include "common/rpc/handshakes.h"
#include "common/rpc/server/sockets.h"
#include "common/security/refusal.h"

namespace muster::rpc {
namespace {

// Ids of epoll events: listeners are below kStop, and connections above.
constexpr uint64_t kStop = 1 << 16;
constexpr int kAcceptsAtOnce = 64;       // The maximum for one listener before other events.
constexpr uint8_t kTlsHandshake = 0x16;  // The first byte of TLS. HTTP/2 begins with 'P'.
constexpr Duration kLine = std::chrono::seconds(10);         // Between two log lines of one kind.
constexpr Duration kRecent = std::chrono::seconds(30);       // For last_refusal().
constexpr Duration kPause = std::chrono::milliseconds(100);  // After a failure to accept.

class AcceptorImpl final : public Acceptor {
 public:
  AcceptorImpl(std::vector<Fd> listeners, AcceptorOptions options)
      : options_(std::move(options)), listeners_(std::move(listeners)) {}
  ~AcceptorImpl() override { Stop(); }

  absl::Status Start(Take take) override;
  void Proved(std::string_view peer) override;
  void Stop() override;
  Counts counts() const override {
    absl::MutexLock lock(&mu_);
    return counts_;
  }
  std::string last_refusal() const override {
    absl::MutexLock lock(&mu_);
    if (refusal_.source.empty() || Clock::now() - refusal_.at > kRecent) return "";
    return fmt::format("{}: {}", refusal_.source, refusal_.why);
  }

 private:
  struct Refusal {
    std::string source, why;
    MonotonicTime at;
  };
  struct Connection {
    // The connection. After take_ was called, another descriptor of it, for epoll to report its
    // end.
    Fd socket;
    std::string source, address;
    MonotonicTime silent_until;
    bool waits = true;  // No byte has arrived yet.
    bool proven = false, plaintext = false;
    std::shared_ptr<HandshakeNote> handshake;  // Set with TLS when take_ is called.
  };
  using Ids = std::set<uint64_t>;  // The oldest first.

  void Run();
  // Handles an epoll event. If no memory is left, closes the connection of the event.
  void Handle(uint64_t id);
  void AcceptFrom(size_t listener);
  // Returns false if no connection waits.
  bool AcceptOne(int listener);
  void NoDescriptor(int listener, int error);
  void Admit(Fd socket, const sockaddr_storage& from);
  // Closes another connection if that is needed for a new one of `source`. Returns false if there
  // is no room.
  bool MakeRoomLocked(const std::string& source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EvictConnectionLocked(uint64_t id, std::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the oldest stranger of the source with the most strangers, or 0 if there is none.
  uint64_t EvictionCandidateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnReady(uint64_t id);
  void EndedLocked(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseTlsLocked(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the connection's descriptor for take_. On an error, closes the connection and returns
  // an empty Fd.
  Fd HandOverLocked(uint64_t id, bool plaintext) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndSilentLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EraseLocked(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int Timeout() const;
  void Listen(bool on);

  template <typename... Args>
  static void LogLimited(LogRateLimiter& line, spdlog::format_string_t<Args...> format,
                         Args&&... args) {
    int64_t before = 0;
    if (!line.Take(&before)) return;
    try {
      LogWarning("{}{}", fmt::format(format, std::forward<Args>(args)...), SuppressedText(before));
    } catch (const std::bad_alloc&) {  // Only the line is lost.
    }
  }

  const AcceptorOptions options_;
  // Used only by the acceptor's thread.
  Take take_;
  std::vector<Fd> listeners_;
  Fd epoll_, spare_;  // NoDescriptor closes spare_, to accept and close one connection.
  std::optional<MonotonicTime> paused_until_;
  Fd stop_;
  std::thread thread_;

  mutable absl::Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = kStop + 1;
  std::unordered_map<uint64_t, Connection> connections_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, uint64_t> by_address_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Ids> strangers_ ABSL_GUARDED_BY(mu_);  // Keyed by source.
  std::map<std::string, int> of_source_ ABSL_GUARDED_BY(mu_);
  Ids waiting_ ABSL_GUARDED_BY(mu_), plaintext_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
  Refusal refusal_ ABSL_GUARDED_BY(mu_);  // The last one.
  LogRateLimiter silent_{1, kLine}, unproven_{1, kLine}, gave_way_{1, kLine},
      turned_away_{1, kLine}, failed_{1, kLine};
};

absl::Status AcceptorImpl::Start(Take take) {
  take_ = std::move(take);
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kStop}};
  if (!epoll_ || !stop_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0)
    return absl::ResourceExhaustedError(
        fmt::format("cannot listen on {}: {}", options_.name, std::strerror(errno)));
  Listen(true);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void AcceptorImpl::Listen(bool on) {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    epoll_ctl(epoll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listeners_[i].get(), &event);
  }
}

int AcceptorImpl::Timeout() const {
  std::optional<MonotonicTime> until = paused_until_;
  {
    absl::MutexLock lock(&mu_);
    if (!waiting_.empty()) {
      const MonotonicTime first = connections_.at(*waiting_.begin()).silent_until;
      until = until ? std::min(*until, first) : first;
    }
  }
  if (!until) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void AcceptorImpl::Run() {
  pthread_setname_np(pthread_self(), "acceptor");
  epoll_event events[64];
  while (true) {
    const int count = epoll_wait(epoll_.get(), events, std::size(events), Timeout());
    const MonotonicTime now = Clock::now();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStop) return;
      Handle(events[i].data.u64);
    }
    if (paused_until_ && now >= *paused_until_) {
      paused_until_.reset();
      Listen(true);
    }
    absl::MutexLock lock(&mu_);
    EndSilentLocked(now);
  }
}

void AcceptorImpl::Handle(uint64_t id) {
  try {
    id < kStop ? AcceptFrom(id) : OnReady(id);
  } catch (const std::bad_alloc&) {
    absl::MutexLock lock(&mu_);
    ++counts_.failed;
    LogLimited(failed_, "{}: closed a connection: no memory is left for it", options_.name);
    if (connections_.contains(id)) EraseLocked(id);
  }
}

// ---- New connections.

void AcceptorImpl::AcceptFrom(size_t listener) {
  for (int i = 0; i < kAcceptsAtOnce && !paused_until_; ++i)
    if (!AcceptOne(listeners_[listener].get())) return;
}

bool AcceptorImpl::AcceptOne(int listener) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  Fd socket(
      accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) {
    Admit(std::move(socket), from);
    return true;
  }
  const int error = errno;
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
    NoDescriptor(listener, error);
  return true;  // The client has closed the connection already, or NoDescriptor has closed it.
}

// Accepts and closes the connection. If it stayed in the queue, epoll would report it again at
// once.
void AcceptorImpl::NoDescriptor(int listener, int error) {
  {
    absl::MutexLock lock(&mu_);
    ++counts_.failed;
    LogLimited(failed_, "{}: closed a connection: no descriptor is left for it (RLIMIT_NOFILE): {}",
               options_.name, std::strerror(error));
  }
  const bool previous = static_cast<bool>(spare_);
  spare_.Reset();
  Fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)).Reset();
  spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (previous && spare_) return;
  Listen(false);
  paused_until_ = Clock::now() + kPause;
}

void AcceptorImpl::Admit(Fd socket, const sockaddr_storage& from) {
  const std::string address = NumericAddress(from);
  const std::string source = SourceOf(from);
  absl::MutexLock lock(&mu_);
  ++counts_.accepted;
  if (!MakeRoomLocked(source)) return;
  const uint64_t id = next_++;
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = id}};
  ConfigureConnection(socket.get());
  const int descriptor = socket.get();
  Connection connection;
  connection.socket = std::move(socket);
  connection.source = source;
  connection.address = address;
  connection.silent_until = Clock::now() + options_.limits.first_byte;
  connections_.emplace(id, std::move(connection));
  ++counts_.strangers;
  try {
    ++of_source_[source];
    by_address_[address] = id;
    strangers_[source].insert(id);
    waiting_.insert(id);
  } catch (const std::bad_alloc&) {
    EraseLocked(id);
    throw;
  }
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return;
  ++counts_.failed;
  LogLimited(failed_, "{}: closed a connection: {}", options_.name, std::strerror(errno));
  EraseLocked(id);
}

bool AcceptorImpl::MakeRoomLocked(const std::string& source) {
  const ConnectionLimits& limits = options_.limits;
  const auto previous = of_source_.find(source);
  if (!options_.tls && previous != of_source_.end() && previous->second >= limits.max_per_source) {
    const auto own = strangers_.find(source);
    if (own == strangers_.end()) {
      ++counts_.turned_away;
      LogLimited(turned_away_,
                 "{}: refused a connection from {}, which already has the maximum of {}",
                 options_.name, source, limits.max_per_source);
      return false;
    }
    EvictConnectionLocked(*own->second.begin(),
                          fmt::format("there are {} from one address", limits.max_per_source));
  }
  if (counts_.strangers >= limits.max_strangers)
    EvictConnectionLocked(EvictionCandidateLocked(),
                          fmt::format("there are {} without a call", limits.max_strangers));
  if (static_cast<int>(connections_.size()) < limits.most) return true;
  if (const uint64_t victim = EvictionCandidateLocked(); victim != 0) {
    EvictConnectionLocked(victim, fmt::format("there are {}", limits.most));
    return true;
  }
  ++counts_.turned_away;
  LogLimited(turned_away_,
             "{}: refused a connection from {}: there are {}, and this process may have no more "
             "(RLIMIT_NOFILE and the size of the cluster)",
             options_.name, source, limits.most);
  return false;
}

uint64_t AcceptorImpl::EvictionCandidateLocked() const {
  const auto most = std::max_element(
      strangers_.begin(), strangers_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most == strangers_.end() ? 0 : *most->second.begin();
}

void AcceptorImpl::EvictConnectionLocked(uint64_t id, std::string_view why) {
  const Connection& connection = connections_.at(id);
  ++counts_.evicted;
  LogLimited(gave_way_, "{}: closed the connection from {} in favor of a newer one: {}",
             options_.name, connection.address, why);
  shutdown(connection.socket.get(), SHUT_RDWR);  // gRPC then closes its descriptor.
  EraseLocked(id);
}

// ---- Existing connections.

void AcceptorImpl::OnReady(uint64_t id) {
  Fd socket;
  bool plaintext = false;
  const auto handshake = options_.tls ? std::make_shared<HandshakeNote>() : nullptr;
  {
    absl::MutexLock lock(&mu_);
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    if (!found->second.waits) return EndedLocked(id);
    uint8_t first = 0;
    const ssize_t got = recv(found->second.socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got != 1) return EraseLocked(id);  // The client closed it and has sent nothing.
    if (!options_.tls && first == kTlsHandshake) return RefuseTlsLocked(id);
    plaintext = options_.tls && first != kTlsHandshake;
    socket = HandOverLocked(id, plaintext);
    if (socket) connections_.at(id).handshake = handshake;
  }
  const HandshakeOf it(handshake);
  if (socket) take_(std::move(socket), plaintext);
}

void AcceptorImpl::EndedLocked(uint64_t id) {
  const Connection& ended = connections_.at(id);
  if (options_.tls && !ended.proven && !ended.plaintext) {
    const std::string why = ended.handshake->why();
    LogLimited(unproven_,
               "{}: the connection from {} ended before the peer proved its identity{}{}",
               options_.name, ended.address, why.empty() ? "" : ": ", why);
    refusal_ = {ended.source, why.empty() ? "the connection ended before it did" : why,
                Clock::now()};
  }
  EraseLocked(id);
}

// Sends a TLS alert before it closes the connection. gRPC would send nothing.
void AcceptorImpl::RefuseTlsLocked(uint64_t id) {
  const Connection& connection = connections_.at(id);
  LogLimited(
      unproven_,
      "{}: the connection from {} is refused: it speaks TLS, which this process does not use: give "
      "both the same key or certificates",
      options_.name, connection.address);
  refusal_ = {connection.source, "it speaks TLS, which this process does not use", Clock::now()};
  (void)send(connection.socket.get(), security::kNoTls, sizeof security::kNoTls,
             MSG_DONTWAIT | MSG_NOSIGNAL);
  EraseLocked(id);
}

Fd AcceptorImpl::HandOverLocked(uint64_t id, bool plaintext) {
  Connection& connection = connections_.at(id);
  // gRPC shuts a socket down when it ends a connection. epoll reports that for this descriptor,
  // too.
  Fd own(fcntl(connection.socket.get(), F_DUPFD_CLOEXEC, 0));
  epoll_event event{.events = EPOLLET, .data = {.u64 = id}};  // EPOLLHUP is always reported.
  if (!own || epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, own.get(), &event) != 0) {
    ++counts_.failed;
    LogLimited(failed_, "{}: closed the connection from {}: {}", options_.name, connection.address,
               std::strerror(errno));
    EraseLocked(id);
    return Fd();
  }
  connection.waits = false;
  waiting_.erase(id);
  Fd taken = std::exchange(connection.socket, std::move(own));
  if (!plaintext) return taken;
  if (static_cast<int>(plaintext_.size()) >= options_.limits.max_plaintext)
    EvictConnectionLocked(*plaintext_.begin(),
                          fmt::format("there are {} of plaintext", options_.limits.max_plaintext));
  connection.plaintext = true;
  plaintext_.insert(id);
  ++counts_.plaintext;
  return taken;
}

void AcceptorImpl::EndSilentLocked(MonotonicTime now) {
  while (!waiting_.empty()) {
    const uint64_t id = *waiting_.begin();
    const Connection& connection = connections_.at(id);
    if (now < connection.silent_until) return;
    ++counts_.silent;
    LogLimited(silent_, "{}: closed the connection from {}: no byte arrived within {:g} s",
               options_.name, connection.address, Seconds(options_.limits.first_byte));
    EraseLocked(id);
  }
}

// The connection may be missing in some of the maps, if Admit found no memory.
void AcceptorImpl::EraseLocked(uint64_t id) {
  const auto found = connections_.find(id);
  const Connection& connection = found->second;
  if (const auto own = strangers_.find(connection.source); own != strangers_.end()) {
    own->second.erase(id);
    if (own->second.empty()) strangers_.erase(own);
  }
  if (const auto of_source = of_source_.find(connection.source);
      of_source != of_source_.end() && --of_source->second == 0)
    of_source_.erase(of_source);
  if (const auto at = by_address_.find(connection.address);
      at != by_address_.end() && at->second == id)
    by_address_.erase(at);
  waiting_.erase(id);
  counts_.plaintext -= static_cast<int>(plaintext_.erase(id));
  --(connection.proven ? counts_.proven : counts_.strangers);
  connections_.erase(found);
}

void AcceptorImpl::Proved(std::string_view peer) {
  const std::string address = PeerAddress(peer);
  absl::MutexLock lock(&mu_);
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return;
  Connection& connection = connections_.at(found->second);
  if (connection.proven || connection.plaintext) return;
  connection.proven = true;
  if (refusal_.source == connection.source) refusal_ = {};
  --counts_.strangers;
  ++counts_.proven;
  const auto own = strangers_.find(connection.source);
  own->second.erase(found->second);
  if (own->second.empty()) strangers_.erase(own);
}

void AcceptorImpl::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
  listeners_.clear();
  absl::MutexLock lock(&mu_);
  connections_.clear();
  by_address_.clear();
  strangers_.clear();
  of_source_.clear();
  waiting_.clear();
  plaintext_.clear();
}

}  // namespace

ConnectionLimits LimitsFor(int64_t descriptors, int peers) {
  ConnectionLimits limits;
  const int64_t wanted = std::max<int64_t>(1024, int64_t{4} * peers);
  limits.most = static_cast<int>(std::clamp<int64_t>(descriptors / 4, 8, wanted));
  limits.max_per_source = limits.most - limits.most / 4;
  limits.max_strangers = std::max(4, limits.most / 4);
  limits.max_plaintext = std::min(16, limits.max_strangers / 2);
  return limits;
}

std::unique_ptr<Acceptor> Acceptor::Make(std::vector<Fd> listeners, AcceptorOptions options) {
  return std::make_unique<AcceptorImpl>(std::move(listeners), std::move(options));
}

}  // namespace muster::rpc
