// The processes that a launcher starts with ranks, from the environment of one of them: how many
// there are, which one this is, and an address for each. Pure functions of the environment, so
// every process computes the same addresses, also after a restart.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/cluster_config.h"
#include "deploy/ranks/node_list.h"
#include "muster/status.h"

namespace muster::ranks {

enum class RankSource { kSlurm, kOpenMpi, kPmi, kTorchrun };
// The values of `muster cluster --from`.
inline constexpr std::string_view kRankSourceNames[] = {"slurm", "openmpi", "pmi", "torchrun"};

struct RankOptions {
  std::vector<HostSlots> hosts;  // --hosts, for launchers that do not name the hosts.
  std::optional<int> port;       // --port, of the first process of each host.
  std::string own_host;          // The name of this host. Empty: not compared with `hosts`.
};

struct Ranks {
  int rank = 0;                    // This process.
  std::vector<Address> addresses;  // By rank. No two are equal.
  // False in the script of a Slurm job, which runs before any process has a rank.
  bool started = true;
  int restarts = 0;  // How often the launcher started this job before.
};

// An error is a ConfigurationError of one sentence that names the variable, its value and the fix.
absl::StatusOr<Ranks> ReadRanks(RankSource source, const Environment& environment,
                                const RankOptions& options);

// The ports of jobs that bring none are from 10000 up to the ephemeral range. A job gets as many
// in a row as a host has processes, `width`, the same on each host. 119 jobs with consecutive
// numbers and at most 128 processes a host have no port in common, whatever their widths.
// REQUIRES: 1 <= width.
inline constexpr int kFirstDerivedPort = 10000;
inline constexpr int kLastDerivedPort = 32767;  // Linux's ephemeral range begins at 32768.
absl::StatusOr<int> DerivedPort(uint64_t job, int width);

}  // namespace muster::ranks
