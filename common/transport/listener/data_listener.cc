#include "common/transport/listener/data_listener.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <asio.hpp>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "common/base/files/fd.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/suppressed.h"
#include "common/transport/address.h"
#include "common/transport/listener/connection_registry.h"
#include "common/transport/listener/dialing.h"
#include "common/transport/listener/pending_connection.h"

namespace muster::transport {
namespace {

using asio::ip::tcp;

constexpr Duration kPause = std::chrono::milliseconds(100);  // After a failure to accept.
constexpr Duration kLine = std::chrono::seconds(10);         // Between two log lines of one kind.

// Lowers the limits, so that pending and early connections each take at most a quarter of this
// process's descriptors.
ListenerOptions WithinLimits(ListenerOptions options) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return options;
  const size_t most = std::max<size_t>(4, limit.rlim_cur / 4);
  options.max_silent = std::min(options.max_silent, most);
  options.max_held = std::min(options.max_held, most);
  return options;
}

Visitor VisitorOf(const tcp::socket& socket) {
  std::error_code error;
  const tcp::endpoint end = socket.remote_endpoint(error);
  if (error) return {"a closed socket", ""};
  asio::ip::address ip = end.address();
  Visitor visitor{JoinEndpoint(ip.to_string(), end.port()), ip.to_string()};
  if (ip.is_v4() || ip.is_loopback()) return visitor;
  asio::ip::address_v6::bytes_type bytes = ip.to_v6().to_bytes();
  if (ip.to_v6().is_v4_mapped()) return visitor;
  // A host can use every address of its /64 network, so the network counts as the source.
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  visitor.source = asio::ip::address_v6(bytes).to_string() + "/64";
  return visitor;
}

class AdmissionImpl : public Admission {
 public:
  AdmissionImpl(std::shared_ptr<ConnectionRegistry> registry, uint64_t generation)
      : registry_(std::move(registry)), generation_(generation) {}
  ~AdmissionImpl() override { registry_->Leave(generation_); }
  std::unique_ptr<DataConnection> Take(int from, uint32_t channel) override {
    return registry_->Take(generation_, {from, channel});
  }
  std::unique_ptr<DataConnection> TakeAny() override { return registry_->TakeAny(generation_); }

 private:
  const std::shared_ptr<ConnectionRegistry> registry_;
  const uint64_t generation_;
};

class DataListenerImpl : public DataListener {
 public:
  explicit DataListenerImpl(const ListenerOptions& options)
      : options_(WithinLimits(options)),
        io_(std::make_shared<asio::io_context>(1)),
        acceptor_(*io_),
        backoff_(*io_),
        registry_(std::make_shared<ConnectionRegistry>(options_)),
        pending_connections_(options_.max_silent, options_.max_silent_each) {}

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
    const std::string host = all ? "127.0.0.1" : options_.bind_address;
    address_ = JoinEndpoint(host, acceptor_.local_endpoint().port());
    LogDebug("this process accepts data connections on {}, address {}",
             all ? "all interfaces" : host, address_);
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  ~DataListenerImpl() override {
    io_->stop();
    if (thread_.joinable()) thread_.join();
  }

  std::string address() const override { return address_; }

  std::unique_ptr<Admission> Admit(uint64_t generation, int to,
                                   const std::string& ticket) override {
    registry_->Admit(generation, to, ticket);
    return std::make_unique<AdmissionImpl>(registry_, generation);
  }

  std::unique_ptr<Dialing> Dial(const DialRequest& request) override {
    auto state = std::make_shared<DialingState>(*io_, registry_, request);
    asio::post(*io_, [state] { state->Start(); });
    return std::make_unique<DialingHandle>(io_, std::move(state));
  }

  void WaitForChange(uint64_t* seen, Duration limit) override {
    registry_->WaitForChange(seen, limit);
  }

 private:
  class DialingHandle : public Dialing {
   public:
    DialingHandle(std::shared_ptr<asio::io_context> io, std::shared_ptr<DialingState> state)
        : io_(std::move(io)), state_(std::move(state)) {}
    ~DialingHandle() override {
      try {
        asio::post(*io_, [state = std::move(state_)] { state->Cancel(); });
      } catch (const std::bad_alloc&) {  // The dial ends at its deadline.
      }
    }
    std::optional<DialingState::Result> TakeResult() override { return state_->TakeResult(); }

   private:
    const std::shared_ptr<asio::io_context> io_;
    std::shared_ptr<DialingState> state_;
  };

  // The listener's thread. If no memory is left for a connection, only that connection is closed.
  void Run() {
    pthread_setname_np(pthread_self(), "data-listener");
    const auto work = asio::make_work_guard(*io_);
    while (!io_->stopped()) {
      try {
        if (accepting_.expired()) {
          auto task = std::make_shared<char>();
          accepting_ = task;
          Accept(std::move(task));
        }
        io_->run();
      } catch (const std::bad_alloc&) {
        Say(no_memory_, "closed a data connection", "no memory is left for it");
        if (accepting_.expired()) std::this_thread::sleep_for(kPause);
      }
    }
  }

  // The handler of the current async_accept owns an AcceptTask. If asio finds no memory, it drops
  // the handler without calling it. accepting_ then expires, and Run accepts again.
  using AcceptTask = std::shared_ptr<char>;
  void Accept(AcceptTask task) {
    acceptor_.async_accept(
        [this, task = std::move(task)](std::error_code error, tcp::socket socket) mutable {
          if (error == asio::error::operation_aborted) return;
          if (error) return AcceptLater(error, std::move(task));
          Accept(std::move(task));  // Called first, because Welcome may find no memory.
          Welcome(std::move(socket));
        });
  }

  // Most likely there are no descriptors left, so closes some connections before the next accept.
  void AcceptLater(std::error_code error, AcceptTask task) {
    Say(not_taken_, "cannot accept a data connection", error.message());
    pending_connections_.Thin();
    backoff_.expires_after(kPause);
    backoff_.async_wait([this, task = std::move(task)](std::error_code stopped) mutable {
      if (!stopped) Accept(std::move(task));
    });
  }

  void Welcome(tcp::socket socket) {
    Visitor visitor = VisitorOf(socket);
    auto pending = std::make_shared<PendingConnection>(*io_, Fd(socket.release()),
                                                       std::move(visitor), registry_);
    pending_connections_.Add(pending);
    pending->Start(options_.hello_timeout);
  }

  // Without memory, only the line is lost.
  static void Say(LogRateLimiter& line, std::string_view what, std::string_view why) {
    int64_t before = 0;
    if (!line.Take(&before)) return;
    LogWarning("{}: {}{}", what, why, SuppressedText(before));
  }

  const ListenerOptions options_;
  const std::shared_ptr<asio::io_context> io_;
  tcp::acceptor acceptor_;
  asio::steady_timer backoff_;
  const std::shared_ptr<ConnectionRegistry> registry_;
  // Used only by the listener's thread.
  PendingConnections pending_connections_;
  std::weak_ptr<char> accepting_;  // The AcceptTask of the current or scheduled accept.
  LogRateLimiter not_taken_{1, kLine}, no_memory_{1, kLine};
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
