#include "chief/coordinator/admission/convert.h"

#include <algorithm>

#include "chief/coordinator/admission/peer_limits.h"
#include "common/base/json/utf8.h"

namespace muster::chief {
namespace {

// Sets `out` to `error` with the time `now` if the error is new, and returns whether it is. Members
// repeat an error in later reports.
bool ApplyError(const proto::GenerationError& error, bool present, PausingTime now,
                std::optional<ReportedError>* out) {
  if (!present || (out->has_value() && (*out)->generation >= error.generation())) return false;
  *out = ReportedError{
      error.generation(), error.message(), now,
      error.exit_code() == 0 ? ExitCode::kRetryable : ExitCodeFromInt(error.exit_code())};
  return true;
}

// Converts milliseconds from a peer. The limits keep the sum with a time valid.
Duration AgeOf(int64_t milliseconds) {
  constexpr int64_t kMax = int64_t{1000} * 3600 * 24 * 365;
  return std::chrono::milliseconds(std::clamp<int64_t>(milliseconds, 0, kMax));
}

template <typename T>
bool Set(T value, T* out) {
  const bool changed = *out != value;
  *out = value;
  return changed;
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
  out.set_message(ValidUtf8(verdict.message));
  return out;
}

MemberProcess ProcessOf(const proto::Hello& hello, PausingTime now) {
  MemberProcess process;
  process.joined = process.connected = true;
  process.last_heard = now;
  process.incarnation = hello.incarnation();
  process.host = hello.host();
  process.devices = hello.devices();
  process.pid = hello.pid();
  process.num_replicas = hello.num_replicas();
  process.again = process.settled = !hello.run_id().empty();
  return process;
}

bool ApplyReport(const proto::Report& said, PausingTime now, MemberInfo* m) {
  proto::Report report = said;
  CleanText(&report);
  m->process.last_heard = now;
  m->report.phase = PhaseFromWire(report.phase());
  m->report.phase_since = now - AgeOf(report.phase_age_ms());
  m->report.step = report.step();
  m->report.collective = report.collective();
  m->report.collective_sequence = report.collective_sequence();
  m->report.collective_since = now - AgeOf(report.collective_age_ms());
  m->report.collectives_done = report.collectives_done();
  m->report.last_step = report.last_step();
  m->report.outcome = ExitCodeFromInt(report.outcome());
  m->report.outcome_message = report.outcome_message();
  m->process.settled =
      m->process.settled || (m->in_generation && m->report.step > m->process.first_step);
  bool changed = Set(report.waiting(), &m->report.waiting);
  if (changed && m->report.waiting) m->report.waiting_since = now;
  changed |= Set<uint64_t>(report.formed_generation(), &m->report.formed_generation);
  changed |= Set(report.acknowledged(), &m->report.acknowledged);
  if (Set(report.finished(), &m->report.finished)) {
    if (m->report.finished) m->report.finished_at = now;
    changed = true;
  }
  changed |= ApplyError(report.formation_error(), report.has_formation_error(), now,
                        &m->report.formation_error);
  changed |= ApplyError(report.collective_error(), report.has_collective_error(), now,
                        &m->report.collective_error);
  return changed;
}

proto::MemberStatus StatusOfMember(const MemberInfo& m, PausingTime now) {
  proto::MemberStatus out;
  out.set_task(m.declared.task.ToString());
  out.set_address(m.declared.address);
  out.set_joined(m.process.joined);
  out.set_connected(m.process.connected);
  if (!m.process.joined) return out;
  out.set_host(m.process.host);
  out.set_pid(m.process.pid);
  out.set_phase(std::string(PhaseName(m.report.phase)));
  out.set_phase_age_seconds(Seconds(now - m.report.phase_since));
  out.set_step(m.report.step);
  out.set_num_replicas(m.process.num_replicas);
  out.set_devices(m.process.devices);
  out.set_silence_seconds(Seconds(now - m.process.last_heard));
  return out;
}

}  // namespace muster::chief
