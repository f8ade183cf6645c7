#include "common/transport/data_listener.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio.hpp>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/transport/address.h"

namespace muster::transport {
namespace {

using asio::ip::tcp;
using Key = std::pair<int, uint32_t>;  // from, channel

constexpr Duration kFirstRetry = std::chrono::milliseconds(20);
constexpr Duration kLongestRetry = std::chrono::milliseconds(500);
constexpr size_t kMaxPerKey = 4;  // connections of one (from, channel) that nobody has taken yet

std::string Remote(const tcp::socket& socket) {
  std::error_code error;
  const tcp::endpoint end = socket.remote_endpoint(error);
  return error ? "a closed socket" : JoinEndpoint(end.address().to_string(), end.port());
}

// A connection whose hello was read.
struct Arrived {
  std::unique_ptr<ByteStream> stream;
  Hello hello;
  std::string remote;
};

void SendAnswer(ByteStream& stream, Verdict verdict, uint64_t generation) {
  const auto answer = EncodeAnswer(verdict, generation);
  const iovec from{const_cast<std::byte*>(answer.data()), answer.size()};
  // A fresh socket's buffer takes 16 bytes; if not, the other side's deadline will tell.
  (void)stream.Write({&from, 1});
}

// What the listener's thread and its callers share. Admissions and dials may outlive the listener.
class Hall {
 public:
  explicit Hall(const ListenerOptions& options)
      : max_held_(options.max_held), hold_timeout_(options.hold_timeout), wrap_(options.wrap) {}

  std::unique_ptr<ByteStream> MakeStream(int fd) const {
    auto stream = MakeTcpStream(fd);
    return wrap_ ? wrap_(std::move(stream)) : std::move(stream);
  }

  // Decides about a connection that has said hello.
  void Judge(Arrived arrived) {
    absl::MutexLock lock(&mutex_);
    ExpireLocked();
    if (arrived.hello.generation > newest_) {
      if (held_.size() >= max_held_) return RefuseLocked(std::move(arrived), Verdict::kBusy);
      held_.push_back({std::move(arrived), Clock::now() + hold_timeout_});
      return;
    }
    SeatLocked(std::move(arrived));
    ChangedLocked();
  }

  void Admit(uint64_t generation, int to, const std::string& ticket) {
    absl::MutexLock lock(&mutex_);
    newest_ = std::max(newest_, generation);
    rooms_[generation] = {to, ticket, {}};
    ExpireLocked();
    for (auto i = held_.begin(); i != held_.end();) {
      if (i->arrived.hello.generation > newest_) {
        ++i;
        continue;
      }
      SeatLocked(std::move(i->arrived));
      i = held_.erase(i);
    }
    ChangedLocked();
  }

  void Leave(uint64_t generation) {
    absl::MutexLock lock(&mutex_);
    rooms_.erase(generation);
  }

  std::unique_ptr<DataConnection> Take(uint64_t generation, Key key) {
    absl::MutexLock lock(&mutex_);
    auto& seats = rooms_[generation].seats;
    return TakeLocked(seats, seats.find(key));
  }

  std::unique_ptr<DataConnection> TakeAny(uint64_t generation) {
    absl::MutexLock lock(&mutex_);
    auto& seats = rooms_[generation].seats;
    return TakeLocked(seats, seats.begin());
  }

  void Refused(const std::string& remote, std::string_view why) {
    absl::MutexLock lock(&mutex_);
    LogRefusalLocked(remote, why);
  }

  void Changed() {
    absl::MutexLock lock(&mutex_);
    ChangedLocked();
  }

  void WaitForChange(uint64_t* seen, Duration limit) {
    absl::MutexLock lock(&mutex_);
    if (changes_ == *seen) changed_.WaitFor(&mutex_, limit);
    *seen = changes_;
  }

 private:
  using Seats = std::map<Key, std::list<Arrived>>;  // no list is empty
  struct Room {
    int to = 0;
    std::string ticket;
    Seats seats;
  };
  struct Held {
    Arrived arrived;
    MonotonicTime until;
  };

  static std::unique_ptr<DataConnection> TakeLocked(Seats& seats, Seats::iterator at) {
    if (at == seats.end()) return nullptr;
    Arrived arrived = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) seats.erase(at);
    const Hello& hello = arrived.hello;
    return std::make_unique<DataConnection>(
        std::move(arrived.stream),
        ConnectionInfo{hello.generation, hello.from, hello.to, hello.channel, arrived.remote});
  }

  void SeatLocked(Arrived arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto room = rooms_.find(arrived.hello.generation);
    if (room == rooms_.end()) return RefuseLocked(std::move(arrived), Verdict::kPastGeneration);
    if (!SameTicket(room->second.ticket, arrived.hello.ticket)) {
      return RefuseLocked(std::move(arrived), Verdict::kWrongTicket);
    }
    const int to = room->second.to;
    Seats& seats = room->second.seats;
    const Key key{arrived.hello.from, arrived.hello.channel};
    const auto same = seats.find(key);
    if ((to != kAnyone && arrived.hello.to != to) ||
        (same != seats.end() && same->second.size() >= kMaxPerKey)) {
      return RefuseLocked(std::move(arrived), Verdict::kNotExpected);
    }
    SendAnswer(*arrived.stream, Verdict::kAccepted, arrived.hello.generation);
    seats[key].push_back(std::move(arrived));
  }

  void RefuseLocked(Arrived arrived, Verdict verdict) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    SendAnswer(*arrived.stream, verdict, arrived.hello.generation);
    static constexpr std::string_view kWhy[] = {"",
                                                "it speaks another version of the data protocol",
                                                "it belongs to a past generation",
                                                "it holds a wrong ticket",
                                                "it is not expected",
                                                "too many early connections are held"};
    LogRefusalLocked(
        arrived.remote,
        fmt::format("{} (generation {:#x}, from {} to {})", kWhy[static_cast<int>(verdict)],
                    arrived.hello.generation, arrived.hello.from, arrived.hello.to));
  }

  void ExpireLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const MonotonicTime now = Clock::now();
    held_.remove_if([&](const Held& h) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (h.until > now) return false;
      LogRefusalLocked(h.arrived.remote, "its generation was never formed here");
      return true;
    });
  }

  // Whoever scans the port must not fill the log: from the tenth on only powers of two.
  void LogRefusalLocked(const std::string& remote, std::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++refused_;
    if (refused_ > 10 && (refused_ & (refused_ - 1)) != 0) return;
    LogWarning("Closed a data connection from {}: {}.{}", remote, why,
               refused_ > 10 ? fmt::format(" ({} so far)", refused_) : "");
  }

  void ChangedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++changes_;
    changed_.SignalAll();
  }

  const size_t max_held_;
  const Duration hold_timeout_;
  const decltype(ListenerOptions::wrap) wrap_;
  absl::Mutex mutex_;
  CondVar changed_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Room> rooms_ ABSL_GUARDED_BY(mutex_);
  std::list<Held> held_ ABSL_GUARDED_BY(mutex_);
};

class AdmissionImpl : public Admission {
 public:
  AdmissionImpl(std::shared_ptr<Hall> hall, uint64_t generation)
      : hall_(std::move(hall)), generation_(generation) {}
  ~AdmissionImpl() override { hall_->Leave(generation_); }
  std::unique_ptr<DataConnection> Take(int from, uint32_t channel) override {
    return hall_->Take(generation_, {from, channel});
  }
  std::unique_ptr<DataConnection> TakeAny() override { return hall_->TakeAny(generation_); }

 private:
  const std::shared_ptr<Hall> hall_;
  const uint64_t generation_;
};

// A connection that came in and has not said hello. Lives on the listener's thread.
class Newcomer : public std::enable_shared_from_this<Newcomer> {
 public:
  Newcomer(tcp::socket socket, std::shared_ptr<Hall> hall, Duration timeout)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor(), timeout),
        hall_(std::move(hall)),
        remote_(Remote(socket_)) {}

  void Start() {
    timer_.async_wait([self = shared_from_this()](std::error_code error) {
      if (!error) self->Close("it said nothing in time");
    });
    Read(0, kHelloPrefixBytes);
  }
  void Close(std::string_view why) {
    if (!socket_.is_open()) return;
    hall_->Refused(remote_, why);
    Drop();
  }
  void Drop() {
    std::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
  }
  bool open() const { return socket_.is_open(); }

 private:
  void Read(size_t from, size_t to) {
    asio::async_read(socket_, asio::buffer(hello_.data() + from, to - from),
                     [self = shared_from_this(), from, to](std::error_code error, size_t size) {
                       // Not a byte: a look whether this port is open, as the coordinator takes.
                       if (error && from + size == 0) return self->Drop();
                       if (error) return self->Close("it closed before it said hello");
                       if (!self->open()) return;  // closed while this was waiting for its turn
                       const std::span<const std::byte, kHelloBytes> all(self->hello_);
                       if (to == kHelloPrefixBytes) {
                         const absl::Status prefix =
                             CheckHelloPrefix(all.first<kHelloPrefixBytes>());
                         if (!prefix.ok()) return self->CloseWithAnswer(prefix);
                         return self->Read(kHelloPrefixBytes, kHelloBytes);
                       }
                       absl::StatusOr<Hello> hello = DecodeHello(all);
                       if (!hello.ok()) return self->CloseWithAnswer(hello.status());
                       self->timer_.cancel();
                       auto stream = self->hall_->MakeStream(self->socket_.release());
                       self->hall_->Judge({std::move(stream), *std::move(hello), self->remote_});
                     });
  }

  void CloseWithAnswer(const absl::Status& why) {
    if (absl::IsInvalidArgument(why)) {  // another version: worth an answer
      const auto answer = EncodeAnswer(Verdict::kOtherVersion, 0);
      std::error_code ignored;
      socket_.non_blocking(true, ignored);
      socket_.write_some(asio::buffer(answer), ignored);
    }
    Close(Message(why));
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  const std::shared_ptr<Hall> hall_;
  const std::string remote_;
  std::array<std::byte, kHelloBytes> hello_{};
};

// A connection being opened. The socket lives on the listener's thread, the result under a mutex.
class DialingState : public std::enable_shared_from_this<DialingState> {
 public:
  using Result = absl::StatusOr<std::unique_ptr<DataConnection>>;

  DialingState(asio::io_context& io, std::shared_ptr<Hall> hall, const DialRequest& request)
      : socket_(io),
        resolver_(io),
        timer_(io),
        retry_(io),
        hall_(std::move(hall)),
        request_(request) {}

  void Start() {
    absl::StatusOr<Endpoint> target = ParseEndpoint(request_.address);
    if (!target.ok()) return End(target.status());
    timer_.expires_at(request_.deadline);
    timer_.async_wait([self = shared_from_this()](std::error_code error) {
      if (error) return;
      self->End(DeadlinePassed(fmt::format(
          "{} in time{}", self->waiting_for_,
          self->last_refusal_.empty() ? "" : fmt::format(" (last: {})", self->last_refusal_))));
    });
    resolver_.async_resolve(
        target->host, std::to_string(target->port), tcp::resolver::numeric_service,
        [self = shared_from_this()](std::error_code error, tcp::resolver::results_type found) {
          if (error) return self->End(PeerLost(fmt::format("cannot resolve: {}", error.message())));
          self->found_ = std::move(found);
          self->Connect();
        });
  }

  void Cancel() { End(Superseded("given up")); }

  std::optional<Result> TakeResult() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(result_, std::nullopt);
  }

 private:
  void Connect() {
    waiting_for_ = "no connection";
    asio::async_connect(socket_, found_,
                        [self = shared_from_this()](std::error_code error, const tcp::endpoint&) {
                          if (error) return self->End(PeerLost(error.message()));
                          self->waiting_for_ = "it did not accept the connection";
                          self->hello_ = EncodeHello(self->request_.hello);
                          asio::async_write(self->socket_, asio::buffer(self->hello_),
                                            [self](std::error_code error, size_t) {
                                              if (error)
                                                return self->End(PeerLost(error.message()));
                                              self->ReadAnswer();
                                            });
                        });
  }

  void ReadAnswer() {
    asio::async_read(
        socket_, asio::buffer(answer_), [self = shared_from_this()](std::error_code error, size_t) {
          if (!self->socket_.is_open()) return;  // given up while this was waiting for its turn
          const Hello& hello = self->request_.hello;
          if (error == asio::error::eof || error == asio::error::connection_reset) {
            return self->DialAgain("it closed the connection without an answer");
          }
          if (error) return self->End(PeerLost(error.message()));
          absl::StatusOr<Verdict> verdict = DecodeAnswer(self->answer_, hello.generation);
          if (!verdict.ok()) return self->End(PeerLost(Message(verdict.status())));
          if (*verdict != Verdict::kAccepted) {
            std::string why = fmt::format("refused the connection: {}", VerdictText(*verdict));
            if (*verdict == Verdict::kBusy) return self->DialAgain(std::move(why));
            return self->End(PeerLost(why));
          }
          auto stream = self->hall_->MakeStream(self->socket_.release());
          self->End(std::make_unique<DataConnection>(
              std::move(stream), ConnectionInfo{hello.generation, hello.from, hello.to,
                                                hello.channel, self->request_.address}));
        });
  }

  // The other side is there and has no room just now: many members dial it at once.
  void DialAgain(std::string why) {
    last_refusal_ = std::move(why);
    std::error_code ignored;
    socket_.close(ignored);
    waiting_for_ = "no room";
    retry_.expires_after(wait_);
    wait_ = std::min<Duration>(2 * wait_, kLongestRetry);
    retry_.async_wait([self = shared_from_this()](std::error_code error) {
      if (!error && !self->ended()) self->Connect();
    });
  }

  bool ended() {
    absl::MutexLock lock(&mutex_);
    return ended_;
  }

  void End(Result result) {
    std::error_code ignored;
    socket_.close(ignored);
    resolver_.cancel();
    timer_.cancel();
    retry_.cancel();
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(ended_, true)) return;
      result_ = std::move(result);
    }
    hall_->Changed();
  }

  tcp::socket socket_;
  tcp::resolver resolver_;
  asio::steady_timer timer_, retry_;
  const std::shared_ptr<Hall> hall_;
  const DialRequest request_;
  tcp::resolver::results_type found_;
  std::string waiting_for_ = "no address", last_refusal_;
  Duration wait_ = kFirstRetry;
  std::array<std::byte, kHelloBytes> hello_{};
  std::array<std::byte, kAnswerBytes> answer_{};

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);
};

class DataListenerImpl : public DataListener {
 public:
  explicit DataListenerImpl(const ListenerOptions& options)
      : options_(options),
        io_(std::make_shared<asio::io_context>(1)),
        acceptor_(*io_),
        backoff_(*io_),
        hall_(std::make_shared<Hall>(options)) {}

  absl::Status Open() {
    std::error_code error;
    const bool all = options_.bind_address.empty();
    asio::ip::address ip = asio::ip::address_v4::any();
    if (!all) ip = asio::ip::make_address(options_.bind_address, error);
    auto refuse = [&] {
      return ConfigurationError(fmt::format("Cannot listen for data connections on {}: {}",
                                            all ? "any address" : options_.bind_address,
                                            error.message()));
    };
    if (error) return refuse();
    const tcp::endpoint where(ip, 0);
    if (acceptor_.open(where.protocol(), error); error) return refuse();
    if (acceptor_.bind(where, error); error) return refuse();
    if (acceptor_.listen(asio::socket_base::max_listen_connections, error); error) return refuse();
    const std::string host = !options_.advertise_host.empty() ? options_.advertise_host
                             : all                            ? "127.0.0.1"
                                                              : options_.bind_address;
    address_ = JoinEndpoint(host, acceptor_.local_endpoint().port());
    LogDebug("Data connections are taken on {}, address {}.", all ? "all interfaces" : host,
             address_);
    Accept();
    thread_ = std::thread([io = io_] { io->run(); });
    return absl::OkStatus();
  }

  ~DataListenerImpl() override {
    io_->stop();
    if (thread_.joinable()) thread_.join();
  }

  std::string address() const override { return address_; }

  std::unique_ptr<Admission> Admit(uint64_t generation, int to,
                                   const std::string& ticket) override {
    hall_->Admit(generation, to, ticket);
    return std::make_unique<AdmissionImpl>(hall_, generation);
  }

  std::unique_ptr<Dialing> Dial(const DialRequest& request) override {
    auto state = std::make_shared<DialingState>(*io_, hall_, request);
    asio::post(*io_, [state] { state->Start(); });
    return std::make_unique<DialingHandle>(io_, std::move(state));
  }

  void WaitForChange(uint64_t* seen, Duration limit) override { hall_->WaitForChange(seen, limit); }

 private:
  class DialingHandle : public Dialing {
   public:
    DialingHandle(std::shared_ptr<asio::io_context> io, std::shared_ptr<DialingState> state)
        : io_(std::move(io)), state_(std::move(state)) {}
    ~DialingHandle() override {
      asio::post(*io_, [state = std::move(state_)] { state->Cancel(); });
    }
    std::optional<DialingState::Result> TakeResult() override { return state_->TakeResult(); }

   private:
    const std::shared_ptr<asio::io_context> io_;
    std::shared_ptr<DialingState> state_;
  };

  void Accept() {
    acceptor_.async_accept([this](std::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {  // out of descriptors, most likely: let some be closed first
        LogWarning("Cannot take a data connection: {}", error.message());
        backoff_.expires_after(std::chrono::milliseconds(100));
        backoff_.async_wait([this](std::error_code stopped) {
          if (!stopped) Accept();
        });
        return;
      }
      Welcome(std::move(socket));
      Accept();
    });
  }

  void Welcome(tcp::socket socket) {
    silent_.remove_if([](const std::weak_ptr<Newcomer>& i) {
      const auto newcomer = i.lock();
      return newcomer == nullptr || !newcomer->open();
    });
    while (silent_.size() >= options_.max_silent) {
      if (const auto oldest = silent_.front().lock()) {
        oldest->Close("too many connections said nothing, it was the oldest");
      }
      silent_.pop_front();
    }
    auto newcomer = std::make_shared<Newcomer>(std::move(socket), hall_, options_.hello_timeout);
    silent_.push_back(newcomer);
    newcomer->Start();
  }

  const ListenerOptions options_;
  const std::shared_ptr<asio::io_context> io_;
  tcp::acceptor acceptor_;
  asio::steady_timer backoff_;
  const std::shared_ptr<Hall> hall_;
  std::list<std::weak_ptr<Newcomer>> silent_;  // the listener's thread only
  std::string address_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataListener>> DataListener::Create(const ListenerOptions& options) {
  auto listener = std::make_unique<DataListenerImpl>(options);
  MUSTER_RETURN_IF_ERROR(listener->Open());
  return listener;
}

}  // namespace muster::transport
