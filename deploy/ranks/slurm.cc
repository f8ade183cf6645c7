// Reads ranks of a Slurm step. srun(1) and env.c of Slurm describe the variables.
#include <fmt/format.h>

#include "deploy/ranks/places.h"

namespace muster::ranks {
namespace {

// The nodes from the step's variables or, without a step, from the job's. A step's environment has
// both.
struct Nodes {
  Variable nodes_variable, counts_variable;
  bool step = false;
  std::vector<std::string> nodes;
  std::vector<int> counts;         // Indexed by node.
  std::vector<std::string> hosts;  // Indexed by rank. The ranks of a node are consecutive.
};

absl::Status Unset(const char* name) {
  return ConfigurationError(
      fmt::format("{} is not set, so Slurm did not start this process: put srun before it", name));
}

absl::Status Expand(Nodes* nodes) {
  const auto names = ParseNodeList(nodes->nodes_variable.value);
  if (!names.ok()) {
    return Refusal(nodes->nodes_variable, fmt::format("{}: write it as Slurm does, node[01-03,7]",
                                                      Message(names.status())));
  }
  const auto counts = ParseTaskCounts(nodes->counts_variable.value);
  if (!counts.ok()) {
    return Refusal(nodes->counts_variable,
                   fmt::format("{}: write it as Slurm does, 2(x3),1", Message(counts.status())));
  }
  nodes->nodes = *names;
  nodes->counts = *counts;
  if (names->size() != counts->size()) {
    return Refusal(nodes->counts_variable,
                   fmt::format("counts the tasks of {} nodes, and {} names {}: both must be of one "
                               "step, start the tasks with one srun",
                               counts->size(), nodes->nodes_variable.name, names->size()));
  }
  for (size_t i = 0; i < names->size(); ++i) {
    if (nodes->hosts.size() + static_cast<size_t>((*counts)[i]) > kMaxRanks)
      return Refusal(nodes->counts_variable,
                     fmt::format("sums up to more than {} tasks", kMaxRanks));
    nodes->hosts.insert(nodes->hosts.end(), static_cast<size_t>((*counts)[i]), (*names)[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<Nodes> ReadNodes(const Environment& environment) {
  Nodes nodes;
  nodes.step = FirstSet(environment, {"SLURM_STEP_NODELIST"}).has_value();
  const std::optional<Variable> list =
      FirstSet(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return Unset("SLURM_STEP_NODELIST");
  const char* counts_name = nodes.step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::optional<Variable> counts = FirstSet(environment, {counts_name});
  if (!counts) return Unset(counts_name);
  nodes.nodes_variable = *list;
  nodes.counts_variable = *counts;
  MUSTER_RETURN_IF_ERROR(Expand(&nodes));
  return nodes;
}

absl::Status CheckSize(const Environment& environment, const Nodes& nodes) {
  const std::optional<Variable> tasks = FirstSet(environment, {"SLURM_STEP_NUM_TASKS"});
  if (!nodes.step || !tasks) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const int number, SmallNumberOf(*tasks));
  if (static_cast<size_t>(number) == nodes.hosts.size()) return absl::OkStatus();
  return Refusal(*tasks, fmt::format("is not the sum of {}, {}: start all tasks with one srun, "
                                     "without --het-group",
                                     nodes.counts_variable.name, nodes.hosts.size()));
}

// Returns an error if the rank is not where the list puts it. The list gives the places of ranks
// only if the ranks of each node are consecutive.
absl::Status CheckPlace(const Environment& environment, const Nodes& nodes, int rank) {
  const std::string& host = nodes.hosts[static_cast<size_t>(rank)];
  const int local = LocalRanks(nodes.hosts)[static_cast<size_t>(rank)];
  MUSTER_ASSIGN_OR_RETURN(const auto real_local, OptionalNumber(environment, {"SLURM_LOCALID"}));
  const std::optional<Variable> real_host = FirstSet(environment, {"SLURMD_NODENAME"});
  if (real_local.value_or(local) == local && (!real_host || real_host->value == host))
    return absl::OkStatus();
  return ConfigurationError(
      fmt::format("SLURM_PROCID {} is task {} of {}, and by its place in {} it is task {} of {}: "
                  "the tasks must "
                  "be in blocks, give srun --distribution=block",
                  rank, real_local.value_or(local), real_host ? real_host->value : "its node",
                  nodes.nodes_variable.name, local, host));
}

// Returns the ports that Slurm reserves for the step on each of its nodes (srun --resv-ports).
// Returns nullopt if there are fewer than `width`, because a cluster may reserve one port for each
// step that requests none.
absl::StatusOr<std::optional<std::vector<int>>> ReservedPorts(const Environment& environment,
                                                              int width) {
  const auto variable = FirstSet(environment, {"SLURM_STEP_RESV_PORTS"});
  if (!variable) return std::nullopt;
  absl::StatusOr<std::vector<int>> ports = ParsePortList(variable->value);
  if (!ports.ok())
    return Refusal(*variable, fmt::format("{}: write 12000-12003", Message(ports.status())));
  if (ports->size() < static_cast<size_t>(width)) return std::nullopt;
  return std::optional(*std::move(ports));
}

absl::StatusOr<std::vector<int>> Ports(const Environment& environment, const RankOptions& options,
                                       int width) {
  if (options.port) return PortsFrom(*options.port, width);
  MUSTER_ASSIGN_OR_RETURN(const auto reserved, ReservedPorts(environment, width));
  if (reserved) return *reserved;
  const auto job = FirstSet(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job) return Unset("SLURM_JOB_ID");
  MUSTER_ASSIGN_OR_RETURN(const uint64_t job_number, NumberOf(*job));
  uint64_t step_number = 0;
  if (const auto step = FirstSet(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}); step) {
    MUSTER_ASSIGN_OR_RETURN(step_number, NumberOf(*step));
  }
  constexpr uint64_t kStepStride = 397;  // Avoids the blocks of the next jobs.
  MUSTER_ASSIGN_OR_RETURN(const int port,
                          DerivedPort(job_number + kStepStride * step_number, width));
  return PortsFrom(port, width);
}

}  // namespace

absl::StatusOr<Ranks> SlurmRanks(const Environment& environment, const RankOptions& options) {
  if (!options.hosts.empty())
    return ConfigurationError("--hosts is given, and Slurm names the hosts: leave it out");
  const std::optional<Variable> rank = FirstSet(environment, {"SLURM_PROCID"});
  if (!rank) return Unset("SLURM_PROCID");
  Ranks ranks;
  MUSTER_ASSIGN_OR_RETURN(ranks.rank, SmallNumberOf(*rank));
  MUSTER_ASSIGN_OR_RETURN(const Nodes nodes, ReadNodes(environment));
  MUSTER_RETURN_IF_ERROR(CheckSize(environment, nodes));
  if (static_cast<size_t>(ranks.rank) >= nodes.hosts.size()) {
    return Refusal(*rank, fmt::format("is not below the {} tasks of {}: start all tasks with one "
                                      "srun, without --het-group",
                                      nodes.hosts.size(), nodes.counts_variable.name));
  }
  ranks.started = nodes.step;
  if (nodes.step) MUSTER_RETURN_IF_ERROR(CheckPlace(environment, nodes, ranks.rank));
  MUSTER_ASSIGN_OR_RETURN(const auto restarts,
                          OptionalNumber(environment, {"SLURM_RESTART_COUNT"}));
  ranks.restarts = restarts.value_or(0);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int> ports,
                          Ports(environment, options, WidthOf(nodes.hosts)));
  MUSTER_ASSIGN_OR_RETURN(ranks.addresses, WithPorts(nodes.hosts, ports));
  return ranks;
}

}  // namespace muster::ranks
