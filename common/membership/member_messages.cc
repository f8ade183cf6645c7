#include "common/membership/member_messages.h"

#include "common/base/json/utf8.h"
#include "common/cluster/protocol.h"

namespace muster::membership {
namespace {

Verdict VerdictOf(const proto::Verdict& v) {
  return {.code = ExitCodeFromInt(v.exit_code()),
          .task = v.task(),
          .host = v.host(),
          .step = v.step(),
          .phase = v.phase() < kNumPhases ? static_cast<Phase>(v.phase()) : Phase::kStarting,
          .message = v.message()};
}

std::shared_ptr<const Roster> RosterOf(const proto::Formation& formation) {
  auto roster = std::make_shared<Roster>();
  roster->generation = formation.generation();
  roster->ticket = formation.ticket();
  roster->newest_rank = static_cast<int>(formation.newest_rank());
  roster->newest_step = formation.newest_step();
  roster->members.reserve(formation.members_size());
  for (const proto::RosterEntry& entry : formation.members())
    roster->members.push_back({.task = entry.task(),
                               .host_id = entry.host_id(),
                               .data_address = entry.data_address(),
                               .num_replicas = static_cast<int>(entry.num_replicas()),
                               .cpus = {entry.cpus().begin(), entry.cpus().end()},
                               .held_devices = DevicesOf(entry.task(), entry.held())});
  return roster;
}

proto::GenerationError ErrorOf(const GenerationError& error) {
  proto::GenerationError result;
  result.set_generation(error.generation);
  result.set_message(ValidUtf8(error.message));
  result.set_exit_code(static_cast<int>(error.code));
  return result;
}

}  // namespace

std::optional<MemberEvent> EventOf(const proto::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kWelcome:
      return Welcomed{.welcome = {.run_id = message.welcome().run_id(),
                                  .term = message.welcome().epoch(),
                                  .job = message.welcome().job()},
                      .chief_pid = message.welcome().pid()};
    case proto::CoordinatorMessage::kRefusal:
      return Refused{.verdict = VerdictOf(message.refusal())};
    case proto::CoordinatorMessage::kVerdict:
      return JobEnded{.verdict = VerdictOf(message.verdict())};
    case proto::CoordinatorMessage::kPulse:
      return Pulse{.stop_requested = message.pulse().stop_requested()};
    case proto::CoordinatorMessage::kRoster:
      return RosterReceived{.line = message.roster()};
    case proto::CoordinatorMessage::kFormation:
      return GenerationOffered{.roster = RosterOf(message.formation())};
    case proto::CoordinatorMessage::kStart:
      return GenerationStarted{.generation = message.start()};
    case proto::CoordinatorMessage::kAbort:
      return GenerationAborted{.generation = message.abort().generation(),
                               .reason = message.abort().reason()};
    case proto::CoordinatorMessage::KIND_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

proto::Hello HelloOf(const MemberOptions& options, uint64_t incarnation, const MemberState& state) {
  proto::Hello hello;
  hello.set_protocol(kControlProtocol);
  hello.set_task(options.task);
  hello.set_incarnation(incarnation);
  // Before the first generation there is no state that could belong to a run.
  if (state.welcome && state.generation != 0) hello.set_run_id(state.welcome->run_id);
  hello.set_cluster_digest(options.cluster_digest);
  hello.set_cluster(options.cluster);
  hello.set_job(options.job);
  for (const auto& [name, version] : options.versions) (*hello.mutable_versions())[name] = version;
  hello.set_num_replicas(options.num_replicas);
  hello.set_devices(options.devices);
  if (const MemberDevices& held_devices = options.held_devices; !held_devices.kind.empty()) {
    hello.mutable_held()->set_kind(held_devices.kind);
    hello.mutable_held()->mutable_uuids()->Assign(held_devices.uuids.begin(),
                                                  held_devices.uuids.end());
    hello.mutable_held()->set_driver(held_devices.driver);
    hello.mutable_held()->set_nccl_host_id(held_devices.nccl_host_id);
  }
  hello.set_host(options.host.name);
  hello.set_pid(options.host.pid);
  hello.set_host_id(options.host.id);
  for (int cpu : options.host.cpus) hello.add_cpus(cpu);
  hello.set_data_address(options.data_address);
  hello.set_highest_generation(state.generation);
  hello.set_generation(state.InGeneration() ? state.generation : 0);
  hello.set_generation_size(
      state.roster == nullptr ? 0 : static_cast<int>(state.roster->members.size()));
  return hello;
}

proto::Report ReportOf(const MemberState& state, PausingTime now,
                       const FlightRecorder::Position& standing, bool acknowledged) {
  const MemberReport& own = state.report;
  proto::Report report;
  report.set_phase(static_cast<uint32_t>(own.phase));
  report.set_phase_age_ms(Milliseconds(now - own.phase_since));
  report.set_step(own.step);
  report.set_collectives_done(standing.completed);
  if (standing.in_flight) {
    report.set_collective(standing.call.Text());
    report.set_collective_sequence(standing.call.sequence);
    report.set_collective_age_ms(Milliseconds(Clock::now() - standing.since));
  }
  report.set_waiting(state.stage == Stage::kWaiting);
  report.set_last_step(own.last_step);
  report.set_formed_generation(own.formed);
  if (own.formation_error) *report.mutable_formation_error() = ErrorOf(*own.formation_error);
  if (own.collective_error) *report.mutable_collective_error() = ErrorOf(*own.collective_error);
  report.set_finished(state.stage == Stage::kFinished);
  report.set_outcome(static_cast<int>(own.outcome));
  report.set_outcome_message(ValidUtf8(own.outcome_message));
  report.set_stop_requested(own.stop_requested);
  report.set_leave_requested(own.leave_requested);
  report.set_acknowledged(acknowledged);
  return report;
}

}  // namespace muster::membership
