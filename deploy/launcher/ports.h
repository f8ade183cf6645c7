// Ports for a local cluster. They are outside the ephemeral range, so that no outgoing connection
// can take the port of a task while it restarts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster {

struct PortRange {
  int low = 0, high = 0;  // Inclusive.
};

// Parses "low high" in the format of /proc/sys/net/ipv4/ip_local_port_range.
absl::StatusOr<PortRange> ParsePortRange(const std::string& text);

// Reserves ports that are free and that no other launch on this host has reserved. An abstract Unix
// socket marks each port, so two simultaneous launches never get the same port. Such a socket
// belongs to the network namespace, as ports do, and disappears with this process. Another user may
// mark any port, so ports marked by other users are used last.
class PortReservation {
 public:
  // `first` is any number. It sets where the search starts, so that launches are spread over the
  // range. Errors are ConfigurationErrors.
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
