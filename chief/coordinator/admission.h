// Decides whether a process that sends a Hello may join. Pure functions of the Hello and of the
// coordinator's state.
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

namespace muster {

// Returns the first field in which two documents differ, "" if none. `mine` is the coordinator's.
using Compare = std::function<std::string(const std::string& mine, const std::string& theirs)>;

// The fields in which a process was started differently from the chief, "" if none. They are
// computed without the coordinator's lock, because the documents are long. The jobs are compared
// only when the clusters agree.
struct Differences {
  std::string cluster_field, job_key;
};

struct AdmissionOptions {
  std::string run_id, cluster_digest, cluster, job;
  // Term of the generations that the chief forms. Its initial value is from owner.json.
  uint32_t epoch = 1;
  // The term with which this chief began. `epoch` may be higher, because members report later
  // terms.
  uint32_t first_epoch = 1;
  // True if the model_dir holds no record of a run. The new run_id then gives way to the run_id of
  // the first member that holds state.
  bool fresh_run = false;
  Compare differing_cluster_field, differing_job_key;
  // A silent member may be replaced by another process of the same task after this time.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct Refusal {
  ExitCode code;
  std::string message;  // One sentence, for the last line of the refused task.
  // True if the job cannot start without this task and will never admit it as it is.
  bool ends_job = false;
  // True if the process is not asked to exit. Its place may become free, so it retries until its
  // timeouts.join has passed.
  bool tries_again = false;
};

Differences DifferencesOf(const proto::Hello& hello, const AdmissionOptions& options);

// Returns nullopt if the process may join.
std::optional<Refusal> Admit(PausingTime now, const proto::Hello& hello,
                             const Differences& differences, const JobState& state,
                             const AdmissionOptions& options);
// Refuses a process that joins a running job with devices that do not fit those of `members`. Only
// this process is refused, so a replacement on the wrong host does not end the job. At the first
// formation the members find the mismatch themselves, and the job ends.
std::optional<Refusal> CheckDevices(const proto::Hello& hello, std::vector<MemberDevices> members);
// Returns the index in `state` of the member with this name ("worker:1"), -1 if none is declared.
int FindMember(const JobState& state, std::string_view name);

}  // namespace muster
