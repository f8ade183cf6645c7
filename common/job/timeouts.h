// The time limits of a job: the section "timeouts" of the job file, with its defaults. The options
// of the chief's rules and of a member derive from Timeouts, and add limits that are no keys of the
// job (MembershipOptions, EvaluationRules, MemberTimeouts).
#pragma once

#include <chrono>

#include "common/base/clock.h"
#include "common/base/phase.h"

namespace muster {

// "Until" names the event for which the job waits.
struct Timeouts {
  Duration join = std::chrono::minutes(10);    // Until all members of the cluster have joined.
  Duration rejoin = std::chrono::minutes(10);  // Until a lost member has joined again.
  Duration resume = std::chrono::seconds(1);   // Until a member has resumed a broken session.
  // The silence of a member after which the chief regards the member as lost.
  Duration heartbeat = std::chrono::seconds(10);
  // Until a member's training loop has left a generation that ended.
  Duration abort = std::chrono::minutes(1);
  // Until the members of a generation have connected their communicators.
  Duration formation = std::chrono::seconds(20);
  Duration collective = std::chrono::minutes(10);  // The time of one collective operation.
  Duration evaluate = std::chrono::minutes(10);    // The time of the evaluator's final evaluation.
  // From the last step until all members have acknowledged the end of the job.
  Duration end = std::chrono::seconds(30);
  Duration bind = std::chrono::seconds(10);  // Until a port that was in use is free.
  // The time that a member spends in one phase. The job keys are "timeouts.phase.<name>". Zero,
  // which no job file may set: no limit. By default, phase[data] + phase[forward] is at most
  // `collective`. The chief therefore detects a member that hangs in data or forward before the
  // other members' collective operations time out.
  Duration phase[kNumPhases] = {
      std::chrono::minutes(30),  // starting
      std::chrono::minutes(2),   // forming
      std::chrono::minutes(5),   // data
      std::chrono::minutes(5),   // forward
      std::chrono::minutes(11),  // reduce
      std::chrono::minutes(1),   // update
      std::chrono::minutes(60),  // evaluate
      std::chrono::minutes(30),  // save
      std::chrono::minutes(2),   // ending
  };
};

}  // namespace muster
