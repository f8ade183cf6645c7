// Any sequence of Hello and Report from peers, with time between them, on the coordinator's pure
// half: who is admitted, what is known of members, and what is decided.
#include "chief/coordinator/admission/admission.h"
#include "chief/coordinator/admission/convert.h"
#include "chief/coordinator/admission/peer_limits.h"
#include "chief/decision/decision.h"
#include "chief/decision/describe_members.h"
#include "common/cluster/protocol.h"
#include "proto/coordinator.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::chief {
namespace {

JobState Declared(PausingTime now) {
  JobState state;
  state.started = state.stage_since = now;
  for (const char* task : {"chief:0", "worker:0", "worker:1"}) {
    MemberInfo member;
    member.declared.task = *ParseTaskId(task);
    member.declared.address = "host.example:2222";
    state.members.push_back(member);
  }
  return state;
}

// Carries out a decision like the coordinator, as far as the next decision needs it.
void Act(PausingTime now, const Decision& decision, JobState* state) {
  fuzz::Require(decision.member < static_cast<int>(state->members.size()), "a member");
  switch (decision.action) {
    case Action::kForm:
      state->stage = JobStage::kForming;
      state->stage_since = now;
      ++state->generation;
      for (MemberInfo& member : state->members) member.in_generation = Ready(member);
      return;
    case Action::kStart:
      state->stage = JobStage::kRunning;
      state->stage_since = now;
      return;
    case Action::kAbortGeneration:
      state->stage = JobStage::kJoining;
      state->stage_since = now;
      for (MemberInfo& member : state->members) member.in_generation = false;
      return;
    case Action::kEndJob:
      state->stage = JobStage::kEnding;
      state->stage_since = now;
      state->verdict = decision.verdict;
      return;
    default:
      return;
  }
}

}  // namespace
}  // namespace muster::chief

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace muster::chief;
  using namespace muster::chief;
  fuzz::Bytes bytes(data, size);
  const auto flags = bytes.Take<uint8_t>();
  MembershipOptions options;
  options.independent = (flags & 1) != 0;
  if ((flags & 2) != 0) options.min_members = 2;
  AdmissionOptions admission{.run_id = "0123456789abcdef", .cluster_digest = "digest"};
  admission.differing_cluster_field =
      admission.differing_job_key = [](const auto&, const auto&) { return std::string(); };
  PausingTime now = PausingTime() + std::chrono::hours(1);
  JobState state = Declared(now);
  const size_t members = state.members.size();
  while (!bytes.done()) {
    const auto action = bytes.Take<uint8_t>();
    now += std::chrono::milliseconds(bytes.Take<uint16_t>());
    const std::string_view piece = bytes.Piece();
    MemberInfo& member = state.members[action % members];
    proto::Hello hello;
    proto::Report report;
    if ((action & 64) != 0 && hello.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) {
      if ((action & 128) != 0) {  // one that is of this run
        hello.set_protocol(kControlProtocol);
        hello.set_cluster_digest(admission.cluster_digest);
        hello.set_task(member.declared.task.ToString());
        hello.clear_run_id();
      }
      if (!ProblemWith(hello).empty()) continue;
      const auto refusal = Admit(now, hello, DifferencesOf(hello, admission), state, admission);
      const int index = FindMember(state, hello.task());
      fuzz::Require(refusal.has_value() || index >= 0, "only those that are declared are admitted");
      if (!refusal) state.members[index].process = ProcessOf(hello, now);
    } else if (member.process.joined &&
               report.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) {
      (void)ApplyReport(report, now, &member);
      fuzz::Require(member.report.phase_since <= now, "a phase did not begin in the future");
    }
    const uint64_t generation = state.generation;
    Act(now, Decide(now, state, options), &state);
    (void)RosterLine(now, state);
    (void)DescribeMembers(now, state);
    for (const MemberInfo& m : state.members) (void)StatusOfMember(m, now);
    fuzz::Require(state.generation >= generation, "generations rise");
  }
  return 0;
}
