#include "common/transport/listener/dialing.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <new>
#include <utility>

#include "common/base/peer_text.h"
#include "common/transport/address.h"

namespace muster::transport {
namespace {

using asio::ip::tcp;

constexpr Duration kFirstRetry = std::chrono::milliseconds(20);
constexpr Duration kLongestRetry = std::chrono::milliseconds(500);

}  // namespace

DialingState::DialingState(asio::io_context& io, std::shared_ptr<ConnectionRegistry> registry,
                           const DialRequest& request)
    : socket_(io),
      watch_(io),
      resolver_(io),
      timer_(io),
      retry_(io),
      wait_(kFirstRetry),
      registry_(std::move(registry)),
      request_(request) {}

template <typename Act>
void DialingState::Try(Act act) {
  try {
    act();
  } catch (const std::bad_alloc&) {
    Drop();                                         // Frees memory.
    absl::Status why = absl::UnavailableError("");  // Allocates nothing.
    try {
      why = PeerLost("no memory is left for the connection");
    } catch (const std::bad_alloc&) {
    }
    End(std::move(why));
  } catch (const std::system_error& error) {  // the resolver cannot start its thread
    End(PeerLost(error.what()));
  }
}

void DialingState::Start() {
  Try([this] { Begin(); });
}

void DialingState::Begin() {
  absl::StatusOr<Endpoint> target = ParseEndpoint(request_.address);
  if (!target.ok()) return End(target.status());
  timer_.expires_at(request_.deadline);
  timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (error) return;
    self->Try([&] { self->End(self->TooLate()); });
  });
  resolver_.async_resolve(
      target->host, std::to_string(target->port), tcp::resolver::numeric_service,
      [self = shared_from_this()](std::error_code error, tcp::resolver::results_type found) {
        self->Try([&] {
          if (error) return self->End(PeerLost(fmt::format("cannot resolve: {}", error.message())));
          self->found_ = std::move(found);
          self->Connect();
        });
      });
}

absl::Status DialingState::TooLate() const {
  return DeadlinePassed(
      fmt::format("{} in time{}", waiting_for_,
                  last_refusal_.empty() ? "" : fmt::format(" (last: {})", last_refusal_)));
}

std::optional<DialingState::Result> DialingState::TakeResult() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(result_, std::nullopt);
}

void DialingState::Connect() {
  if (ended()) return;
  waiting_for_ = "no connection";
  asio::async_connect(socket_, found_,
                      [self = shared_from_this()](std::error_code error, const tcp::endpoint&) {
                        self->Try([&] { self->Reached(error); });
                      });
}

void DialingState::Reached(std::error_code error) {
  if (error) return End(PeerLost(error.message()));
  if (ended()) return;
  if (const absl::Status status = Connected(); !status.ok()) return End(status);
  Advance();
}

absl::Status DialingState::Connected() {
  waiting_for_ = "it did not accept the connection";
  stream_ = MakeTcpStream(socket_.release());
  if (const std::error_code error = watch_.Start(stream_->fd())) return PeerLost(error.message());
  hello_ = EncodeHello(request_.hello);
  moved_ = 0;
  step_ = Step::kHello;
  if (registry_->security() == nullptr) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(security::SslPtr session,
                          registry_->security()->NewSession(/*server=*/false, request_.address));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<TlsStream> tls,
                          TlsStream::Make(std::move(stream_), std::move(session)));
  tls_ = tls.get();
  stream_ = std::move(tls);
  step_ = Step::kSecure;
  return absl::OkStatus();
}

void DialingState::Advance() {
  while (stream_ != nullptr) {
    const absl::StatusOr<bool> done = Take();
    if (!done.ok()) {
      // The other side is reachable, but has no room now, because many members dial it at once.
      const bool closed = tls_ != nullptr ? tls_->ended() : step_ == Step::kAnswer;
      return closed ? DialAgain("it closed the connection without an answer") : End(done.status());
    }
    if (!*done) {
      const bool writes = step_ == Step::kHello;
      watch_.Await(stream_->PollEvents(!writes, writes),
                   [self = shared_from_this()] { self->Try([&] { self->Advance(); }); });
      return;
    }
    if (step_ == Step::kAnswer)
      return HandleAnswer(DecodeAnswer(answer_, request_.hello.generation));
    step_ = step_ == Step::kSecure ? Step::kHello : Step::kAnswer;
    moved_ = 0;
  }
}

absl::StatusOr<bool> DialingState::Take() {
  switch (step_) {
    case Step::kSecure:
      return Secure();
    case Step::kHello:
      return SendHello();
    case Step::kAnswer:
      return ReadAnswer();
  }
  return true;
}

absl::StatusOr<bool> DialingState::Secure() {
  MUSTER_ASSIGN_OR_RETURN(const bool done, tls_->Handshake());
  if (!done) return false;
  MUSTER_ASSIGN_OR_RETURN(const security::Peer peer,
                          registry_->security()->PeerOf(tls_->session()));
  peer_ = SanitizePeerText(peer.task);
  if (!request_.peer.empty() && peer.task != request_.peer)
    return PeerLost(fmt::format("{} answers there, and not {}", peer_, request_.peer));
  return true;
}

absl::StatusOr<bool> DialingState::SendHello() {
  const iovec from{hello_.data() + moved_, hello_.size() - moved_};
  MUSTER_ASSIGN_OR_RETURN(const size_t n, stream_->Write({&from, 1}));
  moved_ += n;
  return moved_ == hello_.size();
}

absl::StatusOr<bool> DialingState::ReadAnswer() {
  while (moved_ < answer_.size()) {
    const iovec into{answer_.data() + moved_, answer_.size() - moved_};
    MUSTER_ASSIGN_OR_RETURN(const size_t n, stream_->Read({&into, 1}));
    if (n == 0) return false;
    moved_ += n;
  }
  return true;
}

void DialingState::HandleAnswer(absl::StatusOr<HelloResult> verdict) {
  if (!verdict.ok()) return End(PeerLost(Message(verdict.status())));
  if (*verdict != HelloResult::kAccepted) {
    std::string why = fmt::format("refused the connection: {}", HelloResultText(*verdict));
    if (*verdict == HelloResult::kBusy) return DialAgain(std::move(why));
    return End(PeerLost(why));
  }
  watch_.Stop();
  const Hello& hello = request_.hello;
  End(std::make_unique<DataConnection>(registry_->Wrap(std::move(stream_)),
                                       ConnectionInfo{hello.generation, hello.from, hello.to,
                                                      hello.channel, request_.address, peer_}));
}

void DialingState::DialAgain(std::string why) {
  last_refusal_ = std::move(why);
  Drop();
  waiting_for_ = "no room";
  retry_.expires_after(wait_);
  wait_ = std::min<Duration>(2 * wait_, kLongestRetry);
  retry_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) self->Try([&] { self->Connect(); });
  });
}

void DialingState::Drop() {
  std::error_code ignored;
  socket_.close(ignored);
  watch_.Stop();
  stream_.reset();
  tls_ = nullptr;
}

bool DialingState::ended() {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

void DialingState::End(Result result) {
  Drop();
  resolver_.cancel();
  timer_.cancel();
  retry_.cancel();
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
    result_ = std::move(result);
  }
  registry_->Changed();
}

}  // namespace muster::transport
