// Reads the rank of this process and the addresses of all ranks from the environment variables of a
// launcher such as srun or mpirun (docs/ranks.md). Pure functions of the environment, so every
// process computes the same addresses, also after a restart.
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
  std::vector<HostSlots> hosts;  // --hosts, if the launcher passes no host names.
  std::optional<int> port;       // --port, the port of the first process on each host.
  std::string own_host;  // This host's name, to detect a wrong order of `hosts`. Empty: no check.
};

struct Ranks {
  int rank = 0;                    // The rank of this process.
  std::vector<Address> addresses;  // Indexed by rank. All are different.
  // False in the batch script of a Slurm job, which runs before srun starts processes with ranks.
  bool started = true;
  int restarts = 0;  // How often the launcher has restarted this job.
};

// An error is a ConfigurationError (muster/status.h) of one sentence that names the variable, its
// value and the fix.
absl::StatusOr<Ranks> ReadRanks(RankSource source, const Environment& environment,
                                const RankOptions& options);

// Computes ports for a job without --port whose launcher assigns no ports. `job` is the
// launcher's job number, and `width` is the number of processes on a host. The job uses `width`
// consecutive ports, and this function returns the first of these ports. The ports are from
// kFirstDerivedPort to kLastDerivedPort, and are the same on each host. Up to 119 jobs with
// consecutive numbers have no port in common if each job has at most 128 processes per host.
// REQUIRES: 1 <= width.
inline constexpr int kFirstDerivedPort = 10000;
inline constexpr int kLastDerivedPort = 32767;  // Linux's ephemeral range begins at 32768.
absl::StatusOr<int> DerivedPort(uint64_t job, int width);

}  // namespace muster::ranks
