// Reserves ports for a local cluster. The ports are outside the ephemeral range, so no outgoing
// connection can take a task's port while the task restarts.
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
// Reads the ephemeral range of this host. Returns Linux's default if the range cannot be read.
absl::StatusOr<PortRange> EphemeralRange();

// A PortReservation holds ports that are free and that no other launch on this host has reserved.
// It marks each port with an abstract Unix socket, so two launches never get the same port. Such a
// socket belongs to the network namespace, as ports do, and disappears with this process. Any user
// can mark any port, so Reserve uses ports with another user's mark last.
class PortReservation {
 public:
  // `first` is any number. It sets where the search starts, so that launches are spread over the
  // range. Returns ConfigurationError if it cannot reserve `count` ports. With `on_all_addresses`,
  // a port counts as free only if it is free on all addresses of this host, not only on 127.0.0.1.
  static absl::StatusOr<PortReservation> Reserve(int count, PortRange ephemeral, unsigned first,
                                                 bool on_all_addresses = false);
  // Returns a reservation of these ports, which tasks of this launch already use. Marks the ports
  // that are not marked yet. Does not check that they are free.
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
