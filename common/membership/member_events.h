// The events and actions of a member's state machine (common/membership/member_state.h). They are
// plain data and need neither threads nor gRPC.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/phase.h"
#include "common/cluster/device_clash.h"
#include "common/cluster/verdict.h"
#include "common/flight/flight_recorder.h"

namespace muster::membership {

struct Welcome {
  std::string run_id;
  uint32_t term = 0;
  std::string job;  // The chief's resolved job, which this process uses.
};

// A member of a generation.
struct RosterMember {
  std::string task, host_id, data_address;
  int num_replicas = 0;
  std::vector<int> cpus;
  MemberDevices held_devices;
};
// The members of a generation that the coordinator offers.
struct Roster {
  uint64_t generation = 0;
  std::string ticket;
  std::vector<RosterMember> members;  // Indexed by rank.
  int newest_rank = 0;                // Rank of the member that holds the newest state.
  int64_t newest_step = 0;
};

// ---- Events. kName is the name in docs/control_plane.md.

// From the loop's calls.
struct JoinRequested {
  static constexpr std::string_view kName = "JoinRequested";
};
struct GenerationRequested {
  static constexpr std::string_view kName = "GenerationRequested";
  int64_t last_step = 0;
};
struct LinksEstablished {  // The communicators of a generation are established.
  static constexpr std::string_view kName = "LinksEstablished";
  uint64_t generation = 0;
  std::string description;
};
struct LinksFailed {
  static constexpr std::string_view kName = "LinksFailed";
  uint64_t generation = 0;
  std::string message;
  ExitCode code = ExitCode::kRetryable;
};
struct PhaseEntered {
  static constexpr std::string_view kName = "PhaseEntered";
  Phase phase = Phase::kStarting;
  int64_t step = 0;
};
struct CollectiveFailed {
  static constexpr std::string_view kName = "CollectiveFailed";
  std::string message;
};
struct LoopFailed {  // An error of the program or its data.
  static constexpr std::string_view kName = "LoopFailed";
  std::string message;
};
struct FailureNotReported {  // The chief could not be informed of the failure.
  static constexpr std::string_view kName = "FailureNotReported";
  std::string failure, why;
};
struct LoopFinished {
  static constexpr std::string_view kName = "LoopFinished";
  int64_t last_step = 0;
  ExitCode outcome = ExitCode::kDone;
  std::string message;
};
struct LoopReturned {  // The loop has returned from a generation that is over.
  static constexpr std::string_view kName = "LoopReturned";
};
struct StopReceived {  // This process received a stop request.
  static constexpr std::string_view kName = "StopReceived";
};

// From the session with the coordinator.
struct Welcomed {
  static constexpr std::string_view kName = "Welcomed";
  Welcome welcome;
  int64_t chief_pid = 0;
};
struct Refused {
  static constexpr std::string_view kName = "Refused";
  Verdict verdict;
};
struct JobEnded {
  static constexpr std::string_view kName = "JobEnded";
  Verdict verdict;
};
struct Pulse {
  static constexpr std::string_view kName = "Pulse";
  bool stop_requested = false;
};
struct RosterReceived {  // A line about missing members.
  static constexpr std::string_view kName = "RosterReceived";
  std::string line;
};
struct GenerationOffered {
  static constexpr std::string_view kName = "GenerationOffered";
  std::shared_ptr<const Roster> roster;
};
struct GenerationStarted {
  static constexpr std::string_view kName = "GenerationStarted";
  uint64_t generation = 0;
};
struct GenerationAborted {
  static constexpr std::string_view kName = "GenerationAborted";
  uint64_t generation = 0;
  std::string reason;
};
struct SessionClosed {
  static constexpr std::string_view kName = "SessionClosed";
  bool no_chief = false;  // The peer is not a Muster chief.
  std::string why;
  Duration retry = Duration::zero();  // The delay of the back-off.
};

// From this process.
struct SessionCut {  // A planned fault cut the session.
  static constexpr std::string_view kName = "SessionCut";
};
struct RecordsDelivered {  // No flight records are left to deliver to the chief.
  static constexpr std::string_view kName = "RecordsDelivered";
};
struct Tick {
  static constexpr std::string_view kName = "Tick";
  bool muted = false;    // A planned fault: the member must send no messages.
  bool leaving = false;  // The member is being destroyed.
};

using MemberEvent =
    std::variant<JoinRequested, GenerationRequested, LinksEstablished, LinksFailed, PhaseEntered,
                 CollectiveFailed, LoopFailed, FailureNotReported, LoopFinished, LoopReturned,
                 StopReceived, Welcomed, Refused, JobEnded, Pulse, RosterReceived,
                 GenerationOffered, GenerationStarted, GenerationAborted, SessionClosed, SessionCut,
                 RecordsDelivered, Tick>;

// ---- Actions. The caller carries them out in the order of MemberChange::actions.

struct OpenSession {
  static constexpr std::string_view kName = "OpenSession";
};
struct CancelSession {
  static constexpr std::string_view kName = "CancelSession";
};
struct SendReport {
  static constexpr std::string_view kName = "SendReport";
};
struct AbortCommunicators {
  static constexpr std::string_view kName = "AbortCommunicators";
  absl::Status why;
};
struct SubmitRecord {  // Sends the flight recorder's content to the chief.
  static constexpr std::string_view kName = "SubmitRecord";
  std::shared_ptr<const Roster> roster;  // The generation of the record.
  std::string reason;
  bool last = false;  // This process ends soon.
};
struct ChiefReached {  // Resets the back-off and retries flight records.
  static constexpr std::string_view kName = "ChiefReached";
};
// The flight recorder carries out these three.
struct NoteGeneration {
  static constexpr std::string_view kName = "NoteGeneration";
};
struct NotePhase {
  static constexpr std::string_view kName = "NotePhase";
};
struct Note {
  static constexpr std::string_view kName = "Note";
  FlightKind kind = FlightKind::kPhase;
  std::string detail;
};
struct Log {
  static constexpr std::string_view kName = "Log";
  bool warning = false;
  std::string line;
};
// These call functions of MemberOptions on the Member's thread.
struct NotifyVerdict {
  static constexpr std::string_view kName = "NotifyVerdict";
  Verdict verdict;
  bool given_up = false;  // Only this process was given up; the job continues.
};
struct NotifyStuck {
  static constexpr std::string_view kName = "NotifyStuck";
  std::string why;
};
struct NotifySilence {
  static constexpr std::string_view kName = "NotifySilence";
  int64_t chief_pid = 0;
  Duration silence = Duration::zero();  // Zero: the chief is heard again.
};

using MemberAction = std::variant<OpenSession, CancelSession, SendReport, AbortCommunicators,
                                  SubmitRecord, ChiefReached, NoteGeneration, NotePhase, Note, Log,
                                  NotifyVerdict, NotifyStuck, NotifySilence>;

}  // namespace muster::membership
