// A connection being opened. The socket lives on the listener's thread, the result under a mutex.
// Internal.
#pragma once

#include <array>
#include <asio.hpp>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/transport/connection_registry.h"
#include "common/transport/socket_watch.h"
#include "common/transport/tls_stream.h"

namespace muster::transport {

class DialingState : public std::enable_shared_from_this<DialingState> {
 public:
  using Result = absl::StatusOr<std::unique_ptr<DataConnection>>;

  DialingState(asio::io_context& io, std::shared_ptr<ConnectionRegistry> registry,
               const DialRequest& request);
  // On the listener's thread.
  void Start();
  void Cancel() { End(Superseded("given up")); }
  // Any thread.
  std::optional<Result> TakeResult();

 private:
  enum class Step { kSecure, kHello, kAnswer };

  // Where there is no memory for it, this dial ends, and nothing else.
  template <typename Act>
  void Try(Act act);
  void Begin();
  void Connect();
  void Reached(std::error_code error);
  absl::Status TooLate() const;
  absl::Status Connected();
  void Advance();
  // True when that step is done.
  absl::StatusOr<bool> Take();
  absl::StatusOr<bool> Secure();
  absl::StatusOr<bool> SendHello();
  absl::StatusOr<bool> ReadAnswer();
  void Judge(absl::StatusOr<Verdict> verdict);
  void DialAgain(std::string why);
  void Drop();
  void End(Result result);
  bool ended();

  asio::ip::tcp::socket socket_;  // until it is connected
  std::unique_ptr<ByteStream> stream_;
  TlsStream* tls_ = nullptr;  // stream_, where it is one
  SocketWatch watch_;         // of it: ends first
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
  size_t moved_ = 0;  // of the step's bytes
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::transport
