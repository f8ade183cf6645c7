// Parses lists of hosts: Slurm's node lists, task counts and port lists, and host files. All
// functions except ReadHosts are pure. The message of an error is the end of a sentence that begins
// with "<variable> is <value>, which ".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::ranks {

// The limit for the number of elements of a list. A larger number is probably a typing error.
inline constexpr int kMaxRanks = 65536;

// Parses a node list of Slurm. For example, "rack[0-1]n[08-10,2],login" is rack0n08, rack0n09,
// rack0n10, rack0n2, rack1n08, ..., login. Keeps the order and repetitions. The numbers of a range
// are padded with zeros to the width of the range's first number. If a name has several brackets,
// the last brackets vary fastest.
absl::StatusOr<std::vector<std::string>> ParseNodeList(std::string_view text);

// Parses a list of task counts of Slurm. For example, "2(x3),1" is 2, 2, 2, 1.
absl::StatusOr<std::vector<int>> ParseTaskCounts(std::string_view text);

// Parses a list of ports. For example, "12000-12002,12010" is 12000, 12001, 12002, 12010.
absl::StatusOr<std::vector<int>> ParsePortList(std::string_view text);

struct HostSlots {
  std::string host;  // An IPv6 address has no brackets.
  int slots = 0;     // The number of processes. 0: the list has no number.
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// Parses a list such as "a:4,b:2", or the content of a host file. The file has the format of Open
// MPI ("a slots=4"), MPICH ("a:4") or PBS (one line per process). Consecutive lines of the same
// host become one host with the sum of the slots. `#` starts a comment.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(std::string_view text);

// Parses the value of --hosts. If a file of this name exists, parses the file. If there is no such
// file, parses the value as a list of hosts. A ConfigurationError contains the value.
absl::StatusOr<std::vector<HostSlots>> ReadHosts(const std::string& value);

}  // namespace muster::ranks
