// Parses Slurm's node lists, task counts and port lists, and host files. Pure functions, except
// that ReadHosts reads a file. The message of an error completes the sentence "<variable> is
// <value>, which ".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::ranks {

// The limit of elements of a list. A larger number is probably a typing error.
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
  std::string host;  // An IPv6 address has no brackets.
  int slots = 0;     // The number of processes. 0: not given.
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// Parses "a:4,b:2", or a host file in the format of Open MPI ("a slots=4"), MPICH ("a:4") or PBS
// (one line per process). Consecutive lines of the same host become one host with the sum of the
// slots. `#` starts a comment.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(std::string_view text);

// Parses the value of --hosts: the name of a host file if that file exists, else a list of hosts. A
// ConfigurationError quotes the value.
absl::StatusOr<std::vector<HostSlots>> ReadHosts(const std::string& value);

}  // namespace muster::ranks
