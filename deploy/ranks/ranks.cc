#include "deploy/ranks/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "deploy/ranks/places.h"

namespace muster::ranks {

std::optional<Variable> FirstSet(const Environment& environment,
                                 const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::optional<std::string> value = environment(name);
    if (value && !value->empty()) return Variable{name, *value};
  }
  return std::nullopt;
}

absl::Status Refusal(const Variable& variable, std::string_view problem) {
  constexpr size_t kShown = 120;
  const bool cut = variable.value.size() > kShown;
  return ConfigurationError(fmt::format("{} is \"{}{}\", which {}", variable.name,
                                        variable.value.substr(0, kShown), cut ? "..." : "",
                                        problem));
}

absl::StatusOr<uint64_t> NumberOf(const Variable& variable) {
  const std::string& text = variable.value;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return Refusal(variable,
                 "is not an integer of at least 0: the launcher sets it, do not change it");
}

absl::StatusOr<int> SmallNumberOf(const Variable& variable) {
  MUSTER_ASSIGN_OR_RETURN(const uint64_t value, NumberOf(variable));
  if (value <= static_cast<uint64_t>(kMaxRanks)) return static_cast<int>(value);
  return Refusal(variable, fmt::format("is above {}, the most processes of a job", kMaxRanks));
}

absl::StatusOr<std::optional<int>> OptionalNumber(const Environment& environment,
                                                  const std::vector<std::string>& names) {
  const std::optional<Variable> variable = FirstSet(environment, names);
  if (!variable) return std::nullopt;
  MUSTER_ASSIGN_OR_RETURN(const int value, SmallNumberOf(*variable));
  return std::optional<int>(value);
}

std::vector<int> LocalRanks(const std::vector<std::string>& hosts) {
  std::map<std::string, int> seen;
  std::vector<int> local;
  for (const std::string& host : hosts) local.push_back(seen[host]++);
  return local;
}

int WidthOf(const std::vector<std::string>& hosts) {
  const std::vector<int> local = LocalRanks(hosts);
  return local.empty() ? 0 : *std::max_element(local.begin(), local.end()) + 1;
}

absl::StatusOr<std::vector<Address>> WithPorts(const std::vector<std::string>& hosts,
                                               const std::vector<int>& ports) {
  const std::vector<int> local = LocalRanks(hosts);
  std::vector<Address> addresses;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    addresses.push_back({hosts[rank], ports.at(static_cast<size_t>(local[rank]))});
  }
  return addresses;
}

absl::StatusOr<std::vector<int>> PortsFrom(int first, int width) {
  if (first < 1 || first + width - 1 > 65535) {
    return ConfigurationError(
        fmt::format("--port is {}, and a host has {} process{}: give a port from 1 to {}", first,
                    width, width == 1 ? "" : "es", 65536 - width));
  }
  std::vector<int> ports(static_cast<size_t>(width));
  std::iota(ports.begin(), ports.end(), first);
  return ports;
}

absl::StatusOr<int> DerivedPort(uint64_t job, int width) {
  constexpr int kBlock = 16;
  constexpr int kPorts = kLastDerivedPort - kFirstDerivedPort + 1;
  // The number of blocks for all widths up to 1552. It is a prime, so two jobs share a first block
  // only if their numbers differ by a multiple of it.
  constexpr int kBlocks = 1327;
  // This factor keeps consecutive jobs farthest apart: 119 of them by 8 blocks or more.
  constexpr uint64_t kStride = 513;
  const int blocks = std::min(kBlocks, (kPorts - width) / kBlock);
  if (blocks < 1) {
    return ConfigurationError(
        fmt::format("a host has {} processes, and there are ports for {}: give --port", width,
                    kPorts - kBlock));
  }
  const auto number = static_cast<uint64_t>(blocks);
  return kFirstDerivedPort + kBlock * static_cast<int>(job % number * kStride % number);
}

absl::StatusOr<Ranks> ReadRanks(RankSource source, const Environment& environment,
                                const RankOptions& options) {
  switch (source) {
    case RankSource::kSlurm:
      return SlurmRanks(environment, options);
    case RankSource::kOpenMpi:
      return OpenMpiRanks(environment, options);
    case RankSource::kPmi:
      return PmiRanks(environment, options);
    case RankSource::kTorchrun:
      return TorchrunRanks(environment, options);
  }
  return ConfigurationError("--from is unknown");
}

}  // namespace muster::ranks
