// The lists that launchers write: Slurm's node lists, task counts and ports, and files of hosts.
// Pure functions. An error is a phrase that continues "<variable> is <value>, which ".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::ranks {

// No list may expand to more elements. A larger number is a typing error.
inline constexpr int kMaxRanks = 65536;

// "rack[0-1]n[08-10,2],login" -> rack0n08, rack0n09, rack0n10, rack0n2, rack1n08, ..., login. Keeps
// the order and repetitions. The width of a range's low bound pads its numbers. The last brackets
// of a name vary fastest.
absl::StatusOr<std::vector<std::string>> ParseNodeList(std::string_view text);

// "2(x3),1" -> 2, 2, 2, 1.
absl::StatusOr<std::vector<int>> ParseTaskCounts(std::string_view text);

// "12000-12002,12010" -> 12000, 12001, 12002, 12010.
absl::StatusOr<std::vector<int>> ParsePortList(std::string_view text);

struct HostSlots {
  std::string host;  // IPv6 without brackets.
  int slots = 0;     // The number of its processes. 0: not given.
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// "a:4,b:2", or lines of a host file in the forms of Open MPI ("a slots=4"), MPICH ("a:4") and PBS
// (a line per process). A host that follows itself is one host with the sum of the slots. `#`
// starts a comment.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(std::string_view text);

}  // namespace muster::ranks
