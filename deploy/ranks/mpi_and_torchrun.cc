// Reads ranks from launchers that set the rank and the number of processes, but not the names of
// the other hosts: Open MPI, launchers with PMI (MPICH, Intel MPI, Cray), and torchrun.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/hash.h"
#include "deploy/ranks/places.h"

namespace muster::ranks {
namespace {

struct Names {
  std::string launcher, command;  // For messages: "Open MPI", "mpirun".
  // Names of variables. The first one that is set is used.
  std::vector<std::string> rank, size, local_rank, local_size;
  std::vector<std::string> job;  // Variables that identify a job.
  std::vector<std::string> restarts;
  std::string in_blocks;  // How to start the processes in blocks.
};

struct Place {
  Variable rank_variable, size_variable;
  int rank = 0, size = 0;
  std::optional<int> local_rank, local_size;
};

absl::StatusOr<Place> ReadPlace(const Names& names, const Environment& environment) {
  Place place;
  for (const auto& [wanted, found] : {std::pair{&names.rank, &place.rank_variable},
                                      std::pair{&names.size, &place.size_variable}}) {
    const std::optional<Variable> variable = FirstSet(environment, *wanted);
    if (!variable) {
      return ConfigurationError(
          fmt::format("{} is not set, so {} did not start this process: put {} before it",
                      wanted->front(), names.launcher, names.command));
    }
    *found = *variable;
  }
  MUSTER_ASSIGN_OR_RETURN(place.rank, SmallNumberOf(place.rank_variable));
  MUSTER_ASSIGN_OR_RETURN(place.size, SmallNumberOf(place.size_variable));
  if (place.rank >= place.size) {
    return Refusal(place.rank_variable, fmt::format("is not below {} {}: both are of one job, do "
                                                    "not change them",
                                                    place.size_variable.name, place.size));
  }
  MUSTER_ASSIGN_OR_RETURN(place.local_rank, OptionalNumber(environment, names.local_rank));
  MUSTER_ASSIGN_OR_RETURN(place.local_size, OptionalNumber(environment, names.local_size));
  return place;
}

// Returns an error if --hosts is a single name but the processes are on several hosts. The name is
// then probably that of a missing file.
absl::Status CheckOneHost(const Place& place, const std::vector<HostSlots>& hosts) {
  if (hosts.size() > 1 || hosts.front().slots > 0 ||
      place.local_size.value_or(place.size) == place.size)
    return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "--hosts is \"{}\", which is not a file, and cannot be the host of all {} processes, because "
      "this one has {}: name an existing file, or all hosts, a:2,b:1",
      hosts.front().host, place.size, *place.local_size));
}

// Returns the host of each rank. The ranks of a host are consecutive.
absl::StatusOr<std::vector<std::string>> Blocks(std::vector<HostSlots> hosts, int size) {
  const auto given = [](const HostSlots& host) { return host.slots > 0; };
  const int number = static_cast<int>(hosts.size());
  if (std::any_of(hosts.begin(), hosts.end(), given)) {
    for (HostSlots& host : hosts) host.slots = std::max(host.slots, 1);
  } else if (size % number != 0) {
    return ConfigurationError(fmt::format(
        "--hosts names {} hosts for {} processes: write how many each has, a:2,b:1", number, size));
  } else {
    for (HostSlots& host : hosts) host.slots = size / number;
  }
  std::vector<std::string> by_rank;
  for (const HostSlots& host : hosts) {
    const int left = size - static_cast<int>(by_rank.size());
    by_rank.insert(by_rank.end(), static_cast<size_t>(std::min(host.slots, left)), host.host);
  }
  if (static_cast<int>(by_rank.size()) == size) return by_rank;
  return ConfigurationError(
      fmt::format("--hosts has room for {} processes, and there are {}: name "
                  "every host",
                  by_rank.size(), size));
}

std::string ShortName(const std::string& host) {
  const bool name = host.find_first_not_of("0123456789.:") != std::string::npos;
  return name ? host.substr(0, host.find('.')) : host;
}

absl::Status CheckPlace(const Names& names, const Place& place, const RankOptions& options,
                        const std::vector<std::string>& hosts) {
  const size_t rank = static_cast<size_t>(place.rank);
  const int local = LocalRanks(hosts)[rank];
  if (place.local_rank.value_or(local) != local) {
    return ConfigurationError(
        fmt::format("rank {} is process {} of its host, and by --hosts it is process {} of {}: {}",
                    place.rank, *place.local_rank, local, hosts[rank], names.in_blocks));
  }
  const std::string own = ShortName(options.own_host);
  const auto is_own = [&own](const std::string& host) { return ShortName(host) == own; };
  if (own.empty() || is_own(hosts[rank]) || std::none_of(hosts.begin(), hosts.end(), is_own))
    return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "rank {} is on {} by --hosts, and this host is {}: name the hosts in the order of their "
      "ranks",
      place.rank, hosts[rank], options.own_host));
}

// Returns the host of each rank. `only_host` is the address to use if all processes are on one
// host.
absl::StatusOr<std::vector<std::string>> HostsOf(const Names& names, const Place& place,
                                                 const RankOptions& options,
                                                 const std::string& only_host) {
  if (!options.hosts.empty()) {
    MUSTER_RETURN_IF_ERROR(CheckOneHost(place, options.hosts));
    MUSTER_ASSIGN_OR_RETURN(std::vector<std::string> hosts, Blocks(options.hosts, place.size));
    MUSTER_RETURN_IF_ERROR(CheckPlace(names, place, options, hosts));
    return hosts;
  }
  if (place.size == 1 || place.local_size == place.size)
    return std::vector<std::string>(static_cast<size_t>(place.size), only_host);
  return ConfigurationError(fmt::format(
      "{} starts {} processes, {} on this host, and does not name the other hosts: give --hosts "
      "a,b or --hosts FILE",
      names.launcher, place.size,
      place.local_size ? std::to_string(*place.local_size) : "an unknown number"));
}

absl::StatusOr<Ranks> RanksOf(const Names& names, const Environment& environment,
                              const RankOptions& options, const std::string& only_host) {
  MUSTER_ASSIGN_OR_RETURN(const Place place, ReadPlace(names, environment));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                          HostsOf(names, place, options, only_host));
  Ranks ranks;
  ranks.rank = place.rank;
  MUSTER_ASSIGN_OR_RETURN(const auto restarts, OptionalNumber(environment, names.restarts));
  ranks.restarts = restarts.value_or(0);
  const int width = WidthOf(hosts);
  int port = options.port.value_or(0);
  if (!options.port) {
    uint64_t job = kFnvStart;
    for (const std::string& name : names.job)
      job = Fnv1a(environment(name).value_or("") + ";", job);
    MUSTER_ASSIGN_OR_RETURN(port, DerivedPort(job, width));
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int> ports, PortsFrom(port, width));
  MUSTER_ASSIGN_OR_RETURN(ranks.addresses, WithPorts(hosts, ports));
  return ranks;
}

// Job ids of batch systems. A job has the same id on all of its hosts.
const std::vector<std::string> kBatchJobs = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"};

std::vector<std::string> WithBatchJobs(std::vector<std::string> names) {
  names.insert(names.end(), kBatchJobs.begin(), kBatchJobs.end());
  return names;
}

constexpr char kLoopback[] = "127.0.0.1";

}  // namespace

absl::StatusOr<Ranks> OpenMpiRanks(const Environment& environment, const RankOptions& options) {
  const Names names = {.launcher = "Open MPI",
                       .command = "mpirun",
                       .rank = {"OMPI_COMM_WORLD_RANK"},
                       .size = {"OMPI_COMM_WORLD_SIZE"},
                       .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                       .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
                       .job = WithBatchJobs({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}),
                       .restarts = {},
                       .in_blocks = "give mpirun --map-by slot"};
  return RanksOf(names, environment, options, kLoopback);
}

absl::StatusOr<Ranks> PmiRanks(const Environment& environment, const RankOptions& options) {
  const Names names = {.launcher = "PMI",
                       .command = "mpiexec",
                       .rank = {"PMI_RANK", "PALS_RANKID"},
                       .size = {"PMI_SIZE"},
                       .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
                       .local_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"},
                       .job = WithBatchJobs({"PALS_APID"}),
                       .restarts = {},
                       .in_blocks = "start the processes in blocks, as mpiexec -ppn does"};
  if (!FirstSet(environment, names.size) && FirstSet(environment, {"PMIX_RANK"})) {
    return ConfigurationError(
        "PMIX_RANK is set and PMI_SIZE is not: PMIx passes the number of processes only to its "
        "library, so name the launcher itself, --from openmpi or --from slurm");
  }
  return RanksOf(names, environment, options, kLoopback);
}

absl::StatusOr<Ranks> TorchrunRanks(const Environment& environment, const RankOptions& options) {
  const Names names = {.launcher = "torchrun",
                       .command = "torchrun --no-python",
                       .rank = {"RANK"},
                       .size = {"WORLD_SIZE"},
                       .local_rank = {"LOCAL_RANK"},
                       .local_size = {"LOCAL_WORLD_SIZE"},
                       .job = {"MASTER_ADDR", "MASTER_PORT"},
                       .restarts = {"TORCHELASTIC_RESTART_COUNT"},
                       .in_blocks =
                           "give torchrun the same --nproc-per-node on every host, and "
                           "--node-rank in the order of --hosts"};
  const std::optional<Variable> master = FirstSet(environment, {"MASTER_ADDR"});
  if (!master) {
    return ConfigurationError(
        "MASTER_ADDR is not set, so torchrun did not start this process: put torchrun --no-python "
        "before it");
  }
  return RanksOf(names, environment, options, master->value);
}

}  // namespace muster::ranks
