#include "chief/convert.h"

namespace muster {
namespace {

// Reports repeat what they said before: only what is new gets a time.
void ApplyError(const proto::GenerationError& error, bool present, MonotonicTime now,
                std::optional<ReportedError>* out) {
  if (!present || (out->has_value() && (*out)->generation >= error.generation())) return;
  *out = ReportedError{
      error.generation(), error.message(), now,
      error.exit_code() == 0 ? ExitCode::kRetryable : ExitCodeFromInt(error.exit_code())};
}

}  // namespace

Phase PhaseFromWire(uint32_t phase) {
  return phase < kNumPhases ? static_cast<Phase>(phase) : Phase::kStarting;
}

proto::Verdict VerdictToProto(const Verdict& verdict) {
  proto::Verdict out;
  out.set_exit_code(static_cast<int>(verdict.code));
  out.set_task(verdict.task);
  out.set_host(verdict.host);
  out.set_step(verdict.step);
  out.set_phase(static_cast<uint32_t>(verdict.phase));
  out.set_message(verdict.message);
  return out;
}

void ApplyReport(const proto::Report& report, MonotonicTime now, MemberState* m) {
  m->last_heard = now;
  m->phase = PhaseFromWire(report.phase());
  m->phase_since = now - std::chrono::milliseconds(report.phase_age_ms());
  m->step = report.step();
  m->waiting = report.waiting();
  m->last_step = report.last_step();
  m->formed_generation = report.formed_generation();
  ApplyError(report.formation_error(), report.has_formation_error(), now, &m->formation_error);
  ApplyError(report.collective_error(), report.has_collective_error(), now, &m->collective_error);
  if (report.finished() && !m->finished) m->finished_at = now;
  m->finished = report.finished();
  m->outcome = ExitCodeFromInt(report.outcome());
  m->outcome_message = report.outcome_message();
  m->acknowledged = report.acknowledged();
}

proto::MemberStatus StatusOfMember(const MemberState& m, const proto::Hello& hello,
                                   MonotonicTime now) {
  proto::MemberStatus out;
  out.set_task(m.task);
  out.set_address(m.address);
  out.set_joined(m.joined);
  out.set_connected(m.connected);
  if (!m.joined) return out;
  out.set_host(m.host);
  out.set_pid(hello.pid());
  out.set_phase(std::string(PhaseName(m.phase)));
  out.set_phase_age_seconds(Seconds(now - m.phase_since));
  out.set_step(m.step);
  out.set_num_replicas(hello.num_replicas());
  out.set_devices(hello.devices());
  out.set_silence_seconds(Seconds(now - m.last_heard));
  return out;
}

}  // namespace muster
