// Ports for a local cluster. They lie outside the ephemeral range, so that no outgoing connection
// of anybody takes the port of a task while that task restarts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "muster/status.h"

namespace muster {

struct PortRange {
  int low = 0, high = 0;  // inclusive
};

// Reads "low high" as /proc/sys/net/ipv4/ip_local_port_range has it.
absl::StatusOr<PortRange> ParsePortRange(const std::string& text);

// Ports that were free when they were picked, and that no other reservation of this host holds:
// each one is marked by an abstract Unix socket (which lives in the network namespace, as the ports
// do, and vanishes with this process), so two launches at the same time never get the same port.
// Another user may hold any mark: ports that others have marked are taken last.
class PortReservation {
 public:
  // `first` is where the search starts, any number: it spreads launches over the range. The error
  // is a ConfigurationError.
  static absl::StatusOr<PortReservation> Reserve(int count, PortRange ephemeral, unsigned first);
  PortReservation(PortReservation&& other) noexcept = default;
  PortReservation& operator=(PortReservation&&) = delete;

  const std::vector<int>& ports() const { return ports_; }

 private:
  PortReservation() = default;
  std::vector<int> ports_;
  std::vector<Fd> marks_;
};

}  // namespace muster
