// What the readers of all launchers share: numbers of the environment, hosts by rank, ports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/ranks/ranks.h"

namespace muster::ranks {

// The first of `names` that is set and not empty.
struct Variable {
  std::string name, value;
};
std::optional<Variable> FirstSet(const Environment& environment,
                                 const std::vector<std::string>& names);

// "<name> is <value>, which <problem>".
absl::Status Refusal(const Variable& variable, std::string_view problem);

// A whole number from 0 on.
absl::StatusOr<uint64_t> NumberOf(const Variable& variable);
// A number of processes or a rank: at most kMaxRanks.
absl::StatusOr<int> SmallNumberOf(const Variable& variable);
// nullopt if none of the names is set.
absl::StatusOr<std::optional<int>> OptionalNumber(const Environment& environment,
                                                  const std::vector<std::string>& names);

// By rank: how many processes of the same host have a lower rank.
std::vector<int> LocalRanks(const std::vector<std::string>& hosts);

// Gives each rank its host and a port. `ports` are those of a host's processes, by local rank.
absl::StatusOr<std::vector<Address>> WithPorts(const std::vector<std::string>& hosts,
                                               const std::vector<int>& ports);
// `width` ports from `first` on.
absl::StatusOr<std::vector<int>> PortsFrom(int first, int width);
// The number of ports that WithPorts needs.
int WidthOf(const std::vector<std::string>& hosts);

absl::StatusOr<Ranks> SlurmRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> OpenMpiRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> PmiRanks(const Environment& environment, const RankOptions& options);
absl::StatusOr<Ranks> TorchrunRanks(const Environment& environment, const RankOptions& options);

}  // namespace muster::ranks
