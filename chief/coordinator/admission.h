// These pure functions decide whether a process that sends a Hello may join. Their inputs are the
// Hello and the coordinator's state.
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

// Returns the first field in which two documents differ, "" if they are equal. `mine` is the
// coordinator's document.
using Compare = std::function<std::string(const std::string& mine, const std::string& theirs)>;

// The first fields in which a process's cluster and job differ from the chief's, "" if none. The
// caller computes them without the coordinator's lock, because the documents are long. The jobs are
// compared only if the clusters are equal.
struct Differences {
  std::string cluster_field, job_key;
};

struct AdmissionOptions {
  std::string run_id, cluster_digest, cluster, job;
  // The chief's term, which is part of the number of each new generation. Its initial value is from
  // owner.json.
  uint32_t term = 1;
  // The chief's term at its start. `term` may be higher, because members may report a later term.
  uint32_t first_term = 1;
  // True if the model_dir holds no record of a run. The chief then adopts the run_id of the first
  // member that holds state.
  bool fresh_run = false;
  Compare differing_cluster_field, differing_job_key;
  // After this time without a heartbeat, another process of the same task may replace a member.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct Refusal {
  ExitCode code;
  std::string message;  // One sentence. The refused task prints it as its last line.
  // True if the refusal ends the job. The job cannot start without this task, and the task's
  // configuration makes every later start fail too.
  bool ends_job = false;
  // True if the refused process does not exit but retries, until its timeouts.join has passed. The
  // task's current process may leave before.
  bool tries_again = false;
};

Differences DifferencesOf(const proto::Hello& hello, const AdmissionOptions& options);

// Returns nullopt if the process may join.
std::optional<Refusal> Admit(PausingTime now, const proto::Hello& hello,
                             const Differences& differences, const JobState& state,
                             const AdmissionOptions& options);
// Refuses a process whose devices clash with those of `members`, the members of a running job. A
// refusal does not end the job, so a replacement on the wrong host does no harm. At the first
// formation the members detect a clash themselves, and then the job ends.
std::optional<Refusal> CheckDevices(const proto::Hello& hello, std::vector<MemberDevices> members);
// Returns the index in `state` of the declared member with this name ("worker:1"), or -1.
int FindMember(const JobState& state, std::string_view name);

}  // namespace muster::chief
