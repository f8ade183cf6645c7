// Whether a process that says Hello may join: a pure function of what it says and what the
// coordinator knows.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/decision.h"
#include "common/cluster/device_clash.h"
#include "proto/coordinator.pb.h"

namespace muster {

// Says where two documents differ, "" if nowhere; the first is the coordinator's.
using Compare = std::function<std::string(const std::string& mine, const std::string& theirs)>;

// Where what a process was started with differs from the chief's, "" if nowhere. Found without the
// coordinator's lock: the documents are long. The job is looked at only where the clusters are the
// same.
struct Differences {
  std::string cluster_field, job_key;
};

struct AdmissionOptions {
  std::string run_id, cluster_digest, cluster, job;
  uint32_t epoch = 1;        // of the generations that the chief forms; at first from owner.json
  uint32_t first_epoch = 1;  // with which this chief began, before members told of later ones
  // No record of a run was found: run_id was made just now, and gives way to that of the first
  // member that holds state.
  bool fresh_run = false;
  Compare differing_cluster_field, differing_job_key;
  Duration suspect = std::chrono::milliseconds(2500);  // silence after which a namesake may replace
};

struct Refusal {
  ExitCode code;
  std::string message;  // one sentence, for the refused task's last line
  // The job cannot start without this task, and it will never be admitted as it is.
  bool ends_job = false;
  // It is not told to end: its place may become free, so it tries again, until its timeouts.join.
  bool tries_again = false;
};

Differences DifferencesOf(const proto::Hello& hello, const AdmissionOptions& options);

// nullopt: welcome.
std::optional<Refusal> Admit(PausingTime now, const proto::Hello& hello,
                             const Differences& differences, const JobState& state,
                             const AdmissionOptions& options);
// Of one that would join a run: its devices do not go with those of `members`. It is refused alone,
// so that a replacement on the wrong host does not end the job. At the first formation the members
// find that themselves, and the job ends.
std::optional<Refusal> CheckDevices(const proto::Hello& hello, std::vector<MemberDevices> members);
// The index in `state` of who calls itself that ("worker:1"), -1 if it is none of the declared
// ones.
int FindMember(const JobState& state, std::string_view name);

}  // namespace muster
