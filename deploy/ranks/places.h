// Helper functions for the readers of all launchers: numbers in the environment, hosts by rank,
// ports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/ranks/ranks.h"

namespace muster::ranks {

// An environment variable.
struct Variable {
  std::string name, value;
};
// Returns the first of `names` that is set and not empty.
std::optional<Variable> FirstSet(const Environment& environment,
                                 const std::vector<std::string>& names);

// Returns the error "<name> is <value>, which <problem>".
absl::Status Refusal(const Variable& variable, std::string_view problem);

// Parses an integer that is not negative.
absl::StatusOr<uint64_t> NumberOf(const Variable& variable);
// Parses a number of processes or a rank, at most kMaxRanks.
absl::StatusOr<int> SmallNumberOf(const Variable& variable);
// As SmallNumberOf for the first of `names` that is set. Returns nullopt if none is set.
absl::StatusOr<std::optional<int>> OptionalNumber(const Environment& environment,
                                                  const std::vector<std::string>& names);

// Returns, indexed by rank, the number of processes of the same host with a lower rank.
std::vector<int> LocalRanks(const std::vector<std::string>& hosts);

// Returns the address of each rank. `ports` are the ports of a host's processes, indexed by local
// rank.
absl::StatusOr<std::vector<Address>> WithPorts(const std::vector<std::string>& hosts,
                                               const std::vector<int>& ports);
// Returns `width` consecutive ports, starting with `first`.
absl::StatusOr<std::vector<int>> PortsFrom(int first, int width);
// Returns the number of ports that WithPorts needs: the highest number of processes on one host.
int WidthOf(const std::vector<std::string>& hosts);

absl::StatusOr<Ranks> SlurmRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> OpenMpiRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> PmiRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> TorchrunRanks(const Environment& environment, const RankOptions& options);

}  // namespace muster::ranks
