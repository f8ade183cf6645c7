#include "chief/convert.h"

namespace muster {
namespace {

// Reports repeat what they said before: only what is new gets a time.
bool ApplyError(const proto::GenerationError& error, bool present, MonotonicTime now,
                std::optional<ReportedError>* out) {
  if (!present || (out->has_value() && (*out)->generation >= error.generation())) return false;
  *out = ReportedError{
      error.generation(), error.message(), now,
      error.exit_code() == 0 ? ExitCode::kRetryable : ExitCodeFromInt(error.exit_code())};
  return true;
}

template <typename T>
bool Set(T value, T* out) {
  const bool news = *out != value;
  *out = value;
  return news;
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

bool ApplyReport(const proto::Report& report, MonotonicTime now, MemberState* m) {
  m->last_heard = now;
  m->phase = PhaseFromWire(report.phase());
  m->phase_since = now - std::chrono::milliseconds(report.phase_age_ms());
  m->step = report.step();
  m->collective = report.collective();
  m->collective_sequence = report.collective_sequence();
  m->collective_since = now - std::chrono::milliseconds(report.collective_age_ms());
  m->collectives_done = report.collectives_done();
  m->last_step = report.last_step();
  m->outcome = ExitCodeFromInt(report.outcome());
  m->outcome_message = report.outcome_message();
  bool news = Set(report.waiting(), &m->waiting);
  news |= Set<uint64_t>(report.formed_generation(), &m->formed_generation);
  news |= Set(report.acknowledged(), &m->acknowledged);
  if (Set(report.finished(), &m->finished)) {
    if (m->finished) m->finished_at = now;
    news = true;
  }
  news |=
      ApplyError(report.formation_error(), report.has_formation_error(), now, &m->formation_error);
  news |= ApplyError(report.collective_error(), report.has_collective_error(), now,
                     &m->collective_error);
  return news;
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
