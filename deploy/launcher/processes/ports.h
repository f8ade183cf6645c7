// Reserves ports for the tasks that `muster launch` starts on a host. The kernel chooses the local
// ports of outgoing connections from the ephemeral range. The reserved ports are outside this
// range, so no outgoing connection can take a task's port while the task restarts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::launcher {

struct PortRange {
  int low = 0, high = 0;  // Inclusive.
};

// Parses "low high" in the format of /proc/sys/net/ipv4/ip_local_port_range.
absl::StatusOr<PortRange> ParsePortRange(const std::string& text);
// Reads the ephemeral range of this host. Returns Linux's default range if the file cannot be read.
absl::StatusOr<PortRange> EphemeralRange();

// A PortReservation holds free ports of this host. It marks each port with an abstract Unix socket,
// so that two launches of one user do not reserve the same port. The mark disappears with the
// PortReservation. A mark belongs to the network namespace, as the port does. Any user can mark any
// port, so another user could mark all ports. Reserve therefore also uses ports with another user's
// mark, if no other ports are left. Two launches of one user may both reserve such a port.
class PortReservation {
 public:
  // Reserves `count` ports outside the range `ephemeral`. `first` is any number. Calls with
  // different values of `first` start the search at different ports. If `on_all_addresses` is true,
  // a reserved port is free on all addresses of this host. If false, a reserved port is free on
  // 127.0.0.1. Returns ConfigurationError if there are too few free ports.
  static absl::StatusOr<PortReservation> Reserve(int count, PortRange ephemeral, unsigned first,
                                                 bool on_all_addresses = false);
  // Returns a reservation of `ports`. Marks the ports that have no mark yet. Does not check that
  // the ports are free, because tasks of this launch may already use them.
  static PortReservation Of(std::vector<int> ports);
  PortReservation(PortReservation&& other) noexcept = default;
  PortReservation& operator=(PortReservation&&) = delete;

  const std::vector<int>& ports() const { return ports_; }

 private:
  PortReservation() = default;
  std::vector<int> ports_;
  std::vector<Fd> marks_;
};

}  // namespace muster::launcher
