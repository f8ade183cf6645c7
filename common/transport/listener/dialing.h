// The state of an attempt to open a data connection. Internal to DataListener (data_listener.h),
// which has one thread. Only this thread uses the socket. Other threads only call TakeResult.
#pragma once

#include <array>
#include <asio.hpp>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/transport/listener/connection_registry.h"
#include "common/transport/listener/socket_watch.h"
#include "common/transport/tls_stream.h"

namespace muster::transport {

class DialingState : public std::enable_shared_from_this<DialingState> {
 public:
  using Result = absl::StatusOr<std::unique_ptr<DataConnection>>;

  DialingState(asio::io_context& io, std::shared_ptr<ConnectionRegistry> registry,
               const DialRequest& request);
  // Called on the listener's thread.
  void Start();
  void Cancel() { End(Superseded("given up")); }
  // Thread-safe. Implements Dialing::TakeResult.
  std::optional<Result> TakeResult();

 private:
  enum class Step { kSecure, kHello, kAnswer };

  // Calls `act`. If `act` fails for lack of memory, ends this attempt with an error.
  template <typename Act>
  void Try(Act act);
  void Begin();
  void Connect();
  void Reached(std::error_code error);
  absl::Status TooLate() const;
  absl::Status Connected();
  void Advance();
  // Each of these methods carries out the current step as far as possible without blocking. Returns
  // whether the step is complete.
  absl::StatusOr<bool> Take();
  absl::StatusOr<bool> Secure();
  absl::StatusOr<bool> SendHello();
  absl::StatusOr<bool> ReadAnswer();
  void HandleAnswer(absl::StatusOr<HelloResult> verdict);
  void DialAgain(std::string why);
  void Drop();
  void End(Result result);
  bool ended();

  asio::ip::tcp::socket socket_;        // The socket until the TCP connection is established.
  std::unique_ptr<ByteStream> stream_;  // Owns the socket of an established TCP connection.
  TlsStream* tls_ = nullptr;            // stream_ if it is a TlsStream, else null.
  SocketWatch watch_;                   // Watches stream_. Destroyed before stream_.
  asio::ip::tcp::resolver resolver_;
  asio::steady_timer timer_, retry_;
  Duration wait_;
  asio::ip::tcp::resolver::results_type found_;
  const std::shared_ptr<ConnectionRegistry> registry_;
  const DialRequest request_;
  const char* waiting_for_ = "no address";
  std::string last_refusal_;
  Step step_ = Step::kSecure;
  std::string peer_;
  std::array<std::byte, kHelloBytes> hello_{};
  std::array<std::byte, kAnswerBytes> answer_{};
  size_t moved_ = 0;  // The number of sent bytes of hello_, or of received bytes of answer_.
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::transport
