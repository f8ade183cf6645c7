// These pure functions decide whether a process may join the job. A process asks to join with a
// Hello (proto/coordinator.proto), the first message of its session with the coordinator. The
// functions read only the Hello and the coordinator's state. A member is a task that takes part in
// training according to the cluster spec.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chief/decision/decision.h"
#include "common/cluster/device_clash.h"
#include "proto/coordinator.pb.h"

namespace muster::chief {

// Returns the first field in which two JSON documents differ, or "" if they are equal. `mine` is
// the coordinator's document, and `theirs` is the process's document.
using Compare = std::function<std::string(const std::string& mine, const std::string& theirs)>;

// The differences between a process and the chief: the first field in which their cluster specs
// differ, and the first key in which their jobs differ. A field is "" if there is no difference.
// The jobs are compared only if the cluster specs are equal. Comparing long documents takes time,
// so the caller does not hold the coordinator's lock.
struct Differences {
  std::string cluster_field, job_key;
};

struct AdmissionOptions {
  // `cluster` and `job` are the chief's cluster spec and job, as JSON.
  std::string run_id, cluster_digest, cluster, job;
  // The chief's term: a number above the terms of all earlier chiefs of the run. A generation is a
  // period in which a fixed set of members trains. The upper 32 bits of each new generation's
  // number are the term. The term starts with the value in owner.json. The chief raises the term if
  // a member has seen a generation with a higher number than any generation of this chief.
  uint32_t term = 1;
  uint32_t first_term = 1;  // The value of `term` at the start of the chief.
  // True if the job has no model_dir, or if the model_dir has no record of a run that has begun.
  // The chief then adopts the run_id of the first member that holds state.
  bool fresh_run = false;
  Compare differing_cluster_field, differing_job_key;
  // A new process of a task may replace the task's current process if the current process has sent
  // no heartbeat for this time. If the session of the current process is broken, the new process
  // may replace it at once.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct Refusal {
  ExitCode code;
  std::string message;  // One sentence. The refused task prints it as its last line.
  // True if the refusal ends the job. In this case the job has not started, it cannot start without
  // the task, and the task's configuration is wrong. A restart of the task would not help.
  bool ends_job = false;
  // True if the refused process retries until its timeouts.join has passed. The task then has
  // another process, which may leave before timeouts.join has passed.
  bool tries_again = false;
};

Differences DifferencesOf(const proto::Hello& hello, const AdmissionOptions& options);

// Returns nullopt if the process may join.
std::optional<Refusal> Admit(PausingTime now, const proto::Hello& hello,
                             const Differences& differences, const JobState& state,
                             const AdmissionOptions& options);
// Returns a refusal if the process's devices clash with the devices of `members`, else nullopt. A
// clash is, for example, a GPU that another member uses. Called only after the first generation was
// formed. The refusal does not end the job, so a new process on the wrong host does no harm. (When
// the first generation is formed, the members detect a clash themselves, and the job ends.)
std::optional<Refusal> CheckDevices(const proto::Hello& hello, std::vector<MemberDevices> members);
// Returns the index in `state.members` of the member with this name, such as "worker:1", or -1.
int FindMember(const JobState& state, std::string_view name);

}  // namespace muster::chief
