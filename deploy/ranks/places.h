// ReadRanks (ranks.h) has one implementation for each kind of launcher. This header declares the
// implementations and their helper functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/ranks/ranks.h"

namespace muster::ranks {

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
// Applies SmallNumberOf to the first of `names` that is set. Returns nullopt if none is set.
absl::StatusOr<std::optional<int>> OptionalNumber(const Environment& environment,
                                                  const std::vector<std::string>& names);

// Returns the local rank of each rank: how many lower ranks are on the same host. `hosts` and the
// result are indexed by rank.
std::vector<int> LocalRanks(const std::vector<std::string>& hosts);

// Returns the address of each rank. `hosts` is indexed by rank. `ports` is indexed by local rank,
// and is the same on all hosts.
absl::StatusOr<std::vector<Address>> WithPorts(const std::vector<std::string>& hosts,
                                               const std::vector<int>& ports);
// Returns `width` consecutive ports, starting with `first`.
absl::StatusOr<std::vector<int>> PortsFrom(int first, int width);
// Returns the number of ports that WithPorts needs: the maximum number of processes per host.
int WidthOf(const std::vector<std::string>& hosts);

// The implementations of ReadRanks.
absl::StatusOr<Ranks> SlurmRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> OpenMpiRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> PmiRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> TorchrunRanks(const Environment& environment, const RankOptions& options);

}  // namespace muster::ranks
