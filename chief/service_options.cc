#include "chief/service_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "chief/coordinator/admission/caller_rules.h"
#include "common/job/cuda_presence.h"
#include "common/push_pull/options.h"

namespace muster::chief {
namespace {

// Returns the first field in which two clusters (JSON text) differ, for the message to a refused
// member.
std::string DifferingField(const std::string& mine, const std::string& theirs) {
  const auto first = ParseJson(mine, "cluster"), second = ParseJson(theirs, "cluster");
  if (!first.ok() || !second.ok()) return "the cluster";
  const auto a = SpecFromJson(*first), b = SpecFromJson(*second);
  if (!a.ok() || !b.ok()) return "the cluster";
  const auto difference = FirstDifference(*a, *b);
  return difference ? fmt::format("{} ({} here, {} there)", difference->field, difference->first,
                                  difference->second)
                    : "";
}

std::string DifferingKey(const std::string& mine, const std::string& theirs) {
  const auto first = ParseJson(mine, "job"), second = ParseJson(theirs, "job");
  return first.ok() && second.ok() ? FirstDifference(*first, *second) : "the job";
}

MembershipOptions Deadlines(const Job& job) {
  MembershipOptions options{job.timeouts};
  options.independent = HasServers(job);
  if (options.independent) {
    // LoadJob has checked the section.
    const auto section = push_pull::ParseParameterServer(job.parameter_server);
    options.spare_servers = section.ok() ? static_cast<int>(section->copies) - 1 : 0;
  }
  if (!options.independent) {
    options.min_members = static_cast<int>(job.elastic.min_workers.value_or(0));
    options.spares = static_cast<int>(job.elastic.spares);
  }
  options.grace = job.elastic.grace;
  options.formation = FormationTimeout(job.timeouts.formation, MayUseCuda(job.devices)) +
                      std::chrono::seconds(5);  // Members time out first, and report why.
  return options;
}

// Returns the members of the job: workers and ps tasks in a parameter-server job, otherwise the
// chief and the workers.
std::vector<DeclaredMember> DeclaredMembers(const ClusterSpec& cluster, const Job& job) {
  const TaskType apart = HasServers(job) ? TaskType::kChief : TaskType::kPs;
  std::vector<DeclaredMember> members;
  for (const TaskId& task : cluster.Tasks())
    if (task.type != TaskType::kEvaluator && task.type != apart)
      members.push_back({task, cluster.AddressOf(task).ToString()});
  return members;
}

// Returns the members' tasks, such as "worker:1".
std::vector<std::string> MemberNames(const ChiefRoleOptions& chief) {
  std::vector<std::string> names;
  for (const DeclaredMember& member : DeclaredMembers(chief.cluster.cluster, chief.job))
    names.push_back(member.task.ToString());
  return names;
}

}  // namespace

bool HasServers(const Job& job) { return job.strategy == StrategyKind::kParameterServer; }

CoordinatorOptions CoordinatorOptionsOf(const ChiefRoleOptions& chief) {
  const ClusterSpec& cluster = chief.cluster.cluster;
  const Job& job = chief.job;
  CoordinatorOptions options;
  options.server.address = cluster.AddressOf(*chief.cluster.chief()).ToString();
  options.server.bind_timeout = job.timeouts.bind;
  options.server.identity = chief.cluster.identity;
  options.server.may_call = MayCallChief;
  options.members = DeclaredMembers(cluster, job);
  options.admission.cluster_digest = cluster.Digest();
  options.admission.cluster = Dump(cluster.ToJson());
  options.admission.job = Dump(JobToJson(job));
  options.admission.differing_cluster_field = DifferingField;
  options.admission.differing_job_key = DifferingKey;
  options.versions = chief.versions;
  options.decision = Deadlines(job);
  return options;
}

DirectorOptions DirectorOptionsOf(const ChiefRoleOptions& chief) {
  const ClusterSpec& cluster = chief.cluster.cluster;
  DirectorOptions options;
  options.job = chief.job;
  options.workers = static_cast<int>(cluster.worker.size());
  for (const Address& server : cluster.ps) options.servers.push_back(server.ToString());
  options.channel.identity = chief.cluster.identity;
  return options;
}

CheckpointsOptions CheckpointsOptionsOf(const ChiefRoleOptions& chief) {
  CheckpointsOptions options;
  options.checkpoint = chief.job.checkpoint;
  options.deadline = chief.job.timeouts.phase[static_cast<int>(Phase::kSave)];
  options.job = JobToJson(chief.job);
  options.versions = chief.versions;
  return options;
}

PublisherOptions PublisherOptionsOf(const ChiefRoleOptions& chief) {
  PublisherOptions options;
  options.model_dir = chief.job.model_dir;
  options.independent = HasServers(chief.job);
  options.summary_every_steps = chief.job.summary.every_steps;
  options.job = JobToJson(chief.job);
  options.versions = chief.versions;
  return options;
}

EvaluationServiceOptions EvaluationOptionsOf(const ChiefRoleOptions& chief) {
  EvaluationServiceOptions options;
  options.cluster_digest = chief.cluster.cluster.Digest();
  options.job = Dump(JobToJson(chief.job));
  options.rules = {chief.job.timeouts};
  options.hold = std::min<Duration>(options.hold, options.rules.heartbeat / 4);
  return options;
}

FlightServiceOptions FlightOptionsOf(const ChiefRoleOptions& chief) {
  FlightServiceOptions options;
  options.model_dir = chief.job.model_dir;
  options.cluster_digest = chief.cluster.cluster.Digest();
  const std::vector<std::string> tasks = MemberNames(chief);
  options.tasks = {tasks.begin(), tasks.end()};
  return options;
}

TraceServiceOptions TraceOptionsOf(const ChiefRoleOptions& chief) {
  TraceServiceOptions options;
  options.model_dir = chief.job.model_dir;
  options.cluster_digest = chief.cluster.cluster.Digest();
  options.tasks = MemberNames(chief);
  options.independent = HasServers(chief.job);
  return options;
}

}  // namespace muster::chief
