// The events and actions of a member's state machine (member_state.h). They are plain data, without
// threads and gRPC.
//
// A member is a task that takes part in training. The coordinator is the part of the chief that
// watches all members. A session is the gRPC stream between a member and the coordinator. A
// generation is a period of training with fixed members. The loop is the member's training loop.
// The verdict says how and why the job ended.
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

// The coordinator's answer to the first message of a session.
struct JoinReply {
  std::string run_id;
  uint32_t term = 0;  // A number above the terms of all earlier chiefs of the run.
  std::string job;    // The chief's job as JSON. This process must use it.
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
  std::string ticket;                 // A secret. Data connections of the generation must send it.
  std::vector<RosterMember> members;  // Indexed by rank.
  int newest_rank = 0;                // The rank of the member with the newest training state.
  int64_t newest_step = 0;            // The number of completed steps in that state.
};

// ---- Events. kName is the name in docs/control_plane.md.

// Events from the loop, which calls methods of Membership.
struct JoinRequested {
  static constexpr std::string_view kName = "JoinRequested";
};
struct GenerationRequested {
  static constexpr std::string_view kName = "GenerationRequested";
  int64_t last_step = 0;
};
struct LinksEstablished {  // The process has made the communicators of the generation.
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
struct LoopFailed {  // The loop failed with an error of the program or its data.
  static constexpr std::string_view kName = "LoopFailed";
  std::string message;
};
struct FailureNotReported {  // The process could not report its failure to the chief.
  static constexpr std::string_view kName = "FailureNotReported";
  std::string failure, why;
};
struct LoopFinished {  // The loop has reached the end of training or an agreed stop.
  static constexpr std::string_view kName = "LoopFinished";
  int64_t last_step = 0;
  ExitCode outcome = ExitCode::kDone;
  std::string message;
};
struct LoopReturned {  // The loop has left its generation.
  static constexpr std::string_view kName = "LoopReturned";
};
struct StopReceived {  // This process received a stop request.
  static constexpr std::string_view kName = "StopReceived";
};

// Events from the session.
struct Welcomed {
  static constexpr std::string_view kName = "Welcomed";
  JoinReply welcome;
  int64_t chief_pid = 0;
};
struct Refused {  // The coordinator does not accept this process.
  static constexpr std::string_view kName = "Refused";
  Verdict verdict;
};
struct JobEnded {
  static constexpr std::string_view kName = "JobEnded";
  Verdict verdict;
};
struct Pulse {  // A heartbeat of the coordinator.
  static constexpr std::string_view kName = "Pulse";
  bool stop_requested = false;  // True if all members must stop at an agreed step.
};
struct RosterReceived {  // The coordinator has sent a log line that names the missing members.
  static constexpr std::string_view kName = "RosterReceived";
  std::string line;
};
struct GenerationOffered {  // The members must connect for a new generation.
  static constexpr std::string_view kName = "GenerationOffered";
  std::shared_ptr<const Roster> roster;
};
struct GenerationStarted {  // All members have connected.
  static constexpr std::string_view kName = "GenerationStarted";
  uint64_t generation = 0;
};
struct GenerationAborted {  // The coordinator has ended the generation.
  static constexpr std::string_view kName = "GenerationAborted";
  uint64_t generation = 0;
  std::string reason;
};
struct SessionClosed {
  static constexpr std::string_view kName = "SessionClosed";
  bool no_chief = false;  // True if the peer is not a Muster chief.
  std::string why;
  Duration retry = Duration::zero();  // The time to wait before the next session is opened.
};

// Events from other parts of this process.
struct SessionCut {  // A planned fault (--fault) breaks the session.
  static constexpr std::string_view kName = "SessionCut";
};
struct RecordsDelivered {  // All flight records (common/flight/flight_record.h) are delivered.
  static constexpr std::string_view kName = "RecordsDelivered";
};
struct Tick {  // Time has passed. The Member's thread makes a Tick at least every 100 ms.
  static constexpr std::string_view kName = "Tick";
  bool muted = false;    // True if a planned fault (--fault) forbids messages.
  bool leaving = false;  // True if the Member is being destroyed.
};

using MemberEvent =
    std::variant<JoinRequested, GenerationRequested, LinksEstablished, LinksFailed, PhaseEntered,
                 CollectiveFailed, LoopFailed, FailureNotReported, LoopFinished, LoopReturned,
                 StopReceived, Welcomed, Refused, JobEnded, Pulse, RosterReceived,
                 GenerationOffered, GenerationStarted, GenerationAborted, SessionClosed, SessionCut,
                 RecordsDelivered, Tick>;

// ---- Actions. The caller of Apply carries out the actions in the order of MemberChange::actions.

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
struct SubmitRecord {  // Sends the content of the flight recorder to the chief.
  static constexpr std::string_view kName = "SubmitRecord";
  std::shared_ptr<const Roster> roster;  // The roster of the record's generation.
  std::string reason;                    // Why the generation ended.
  bool last = false;                     // True if this process ends soon.
};
// Resets the back-off of sessions, and delivers flight records at once, because the chief has
// answered.
struct ChiefReached {
  static constexpr std::string_view kName = "ChiefReached";
};
struct NoteGeneration {  // Sets the generation of the flight recorder.
  static constexpr std::string_view kName = "NoteGeneration";
};
struct NotePhase {  // Sets the phase of the flight recorder.
  static constexpr std::string_view kName = "NotePhase";
};
struct Note {  // Adds an event to the flight recorder.
  static constexpr std::string_view kName = "Note";
  FlightKind kind = FlightKind::kPhase;
  std::string detail;
};
struct Log {
  static constexpr std::string_view kName = "Log";
  bool warning = false;
  std::string line;
};
// The Member's thread carries out the following actions. Each of them calls a function of
// MemberOptions.
struct NotifyVerdict {  // Calls on_given_up if `given_up` is true, and then on_verdict.
  static constexpr std::string_view kName = "NotifyVerdict";
  Verdict verdict;
  bool given_up = false;  // True if the coordinator refused this process while the job continues.
};
struct NotifyStuck {  // Calls on_stuck.
  static constexpr std::string_view kName = "NotifyStuck";
  std::string why;
};
struct NotifySilence {  // Calls on_chief_silent.
  static constexpr std::string_view kName = "NotifySilence";
  int64_t chief_pid = 0;
  Duration silence = Duration::zero();  // Zero: a message of the chief has arrived.
};

using MemberAction = std::variant<OpenSession, CancelSession, SendReport, AbortCommunicators,
                                  SubmitRecord, ChiefReached, NoteGeneration, NotePhase, Note, Log,
                                  NotifyVerdict, NotifyStuck, NotifySilence>;

}  // namespace muster::membership
