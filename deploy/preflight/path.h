// Measures the path between the data addresses of two tasks: the largest packet that passes (MTU)
// and the rate of a short TCP transfer. The receiving task serves probes on ports that the kernel
// chooses, and only probes that begin with its token. It sends no more than it receives. All sizes
// and times are bounded.
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
// A transfer lasts this long, and so does the time that a receiver counts.
inline constexpr Duration kTransfer = std::chrono::milliseconds(300);
// The most that one measurement of a path may take, with all retries.
inline constexpr Duration kPathLimit = std::chrono::seconds(6);

// Where a task receives probes. `host` is a numeric address.
struct ProbePorts {
  std::string host;
  int udp = 0, tcp = 0;
  std::string token;  // kTokenBytes bytes.
};

Json ToJson(const ProbePorts& ports);
absl::StatusOr<ProbePorts> ProbePortsFromJson(const Json& json);

// What has arrived of a transfer.
struct Received {
  int64_t bytes = 0;
  double seconds = 0;
  double BitsPerSecond() const {
    return seconds > 0 ? 8.0 * static_cast<double>(bytes) / seconds : 0;
  }
};

// Answers the probes of one other task. Used by one thread.
class PathReceiver {
 public:
  // Opens the ports on `host`, a numeric address of this host.
  static absl::StatusOr<PathReceiver> Open(const std::string& host);
  const ProbePorts& ports() const { return ports_; }
  // Answers probes until `fd` is readable or `until` has passed.
  void Serve(int fd, MonotonicTime until);
  // Returns what has arrived of the transfer, without its first moments.
  const Received& received() const { return received_; }

 private:
  PathReceiver() = default;
  void AnswerProbe();
  void Accept();
  void Count();
  void EndTransfer();

  ProbePorts ports_;
  Fd udp_, tcp_, transfer_;
  int probes_left_ = 400;   // The most that are answered.
  int transfers_left_ = 4;  // The most connections that are accepted.
  std::string head_;        // The first bytes of the transfer, until the token is complete.
  std::optional<MonotonicTime> first_, counted_from_;
  Received received_;
};

// The result of probes with packets of several sizes. Sizes are those of whole IP packets.
struct PathMtu {
  int own = 0;    // The MTU of this host's interface.
  int found = 0;  // The largest packet that arrived. 0: none did.
  // What the path has told this host by ICMP; `own` if nothing.
  int told = 0;
};

// Sends packets that must not be fragmented and finds the largest that arrives. `round_trip` is
// that of the path: an answer is awaited for a few times as long.
absl::StatusOr<PathMtu> ProbeMtu(const std::string& own_host, const ProbePorts& to,
                                 Duration round_trip, MonotonicTime until);
// Sends zeros for kTransfer, or until the receiver has enough, in packets that `mtu` says to pass.
// The receiver counts them.
absl::Status SendTransfer(const std::string& own_host, const ProbePorts& to, const PathMtu& mtu,
                          MonotonicTime until);

}  // namespace muster::preflight
