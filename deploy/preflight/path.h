// Measures the network path from one task to another: its MTU, and the rate of a short TCP
// transfer. The sender sends UDP packets (probes) of several sizes to find the MTU. The receiver
// listens on ports that the kernel chooses, and answers only probes that begin with its random
// token. The receiver never sends more bytes than it receives. All sizes and times are bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::preflight {

inline constexpr size_t kTokenBytes = 16;
// The receiver accepts a transfer for this time. The time begins with a warm-up. Received does not
// count the bytes of the warm-up.
inline constexpr Duration kTransfer = std::chrono::milliseconds(300);
// The limit for one measurement of a path, with all retries.
inline constexpr Duration kPathLimit = std::chrono::seconds(6);

// The ports on which a task receives probes and transfers. `host` is a numeric address.
struct ProbePorts {
  std::string host;
  int udp = 0, tcp = 0;
  std::string token;  // kTokenBytes bytes.
};

Json ToJson(const ProbePorts& ports);
absl::StatusOr<ProbePorts> ProbePortsFromJson(const Json& json);

// The counted part of a transfer: the bytes that arrived after the warm-up, and the time they took.
struct Received {
  int64_t bytes = 0;
  double seconds = 0;
  double BitsPerSecond() const {
    return seconds > 0 ? 8.0 * static_cast<double>(bytes) / seconds : 0;
  }
};

// Answers the probes of one other task, and receives the transfer of that task. Used by one thread.
class PathReceiver {
 public:
  // Opens the ports on `host`, a numeric address of this host.
  static absl::StatusOr<PathReceiver> Open(const std::string& host);
  const ProbePorts& ports() const { return ports_; }
  // Answers probes and receives transfers until `fd` is readable or `until` has passed.
  void Serve(int fd, MonotonicTime until);
  // Returns the counted part of the last transfer.
  const Received& received() const { return received_; }

 private:
  PathReceiver() = default;
  void AnswerProbe();
  void Accept();
  void Count();
  void EndTransfer();

  ProbePorts ports_;
  Fd udp_, tcp_, transfer_;
  int probes_left_ = 400;   // How many more probes are answered.
  int transfers_left_ = 4;  // How many more connections are accepted.
  std::string head_;        // The bytes of the token that have arrived in transfer_.
  std::optional<MonotonicTime> first_, counted_from_;
  Received received_;
};

// The result of ProbeMtu. Sizes are in bytes and include IP headers.
struct PathMtu {
  int own = 0;    // The MTU of this host's interface.
  int found = 0;  // The size of the largest probe that arrived, or 0.
  // The path MTU that routers reported to this host by ICMP. Without a report, this is `own`.
  int reported = 0;
};

// Sends probes with the don't-fragment bit, and finds the largest size that arrives. `round_trip`
// is the round-trip time of the path. The timeout of an answer is a small multiple of `round_trip`.
absl::StatusOr<PathMtu> ProbeMtu(const std::string& own_host, const ProbePorts& to,
                                 Duration round_trip, MonotonicTime until);
// Sends zeros until the receiver closes the connection, for at most twice kTransfer. TCP segments
// are not larger than `mtu` allows.
absl::Status SendTransfer(const std::string& own_host, const ProbePorts& to, const PathMtu& mtu,
                          MonotonicTime until);

}  // namespace muster::preflight
