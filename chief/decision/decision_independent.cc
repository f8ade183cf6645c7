// Decisions for the members of a parameter-server job, which are independent once all have joined.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chief/decision/decision_parts.h"
#include "chief/decision/membership_policy.h"

namespace muster::chief {
namespace {

bool IsServer(const MemberInfo& m) { return m.declared.task.type == TaskType::kPs; }

PausingTime MissingSince(const MemberInfo& m, const JobState& s) {
  return std::max(s.stage_since, m.missing_since.value_or(s.stage_since));
}

Decision GiveUp(int member, Verdict verdict) {
  Decision decision = Make(Action::kDrop, Describe(verdict), member);
  decision.verdict = std::move(verdict);
  decision.expel = true;
  return decision;
}

bool ServerMissing(const JobState& s) {
  return std::any_of(s.members.begin(), s.members.end(),
                     [](const MemberInfo& m) { return IsServer(m) && !m.in_generation; });
}

// Finds a member that is connected but exceeds the timeout of its phase.
std::optional<Decision> PhaseDeadline(PausingTime now, const JobState& s,
                                      const MembershipOptions& o) {
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    const Duration limit = PhaseLimit(m, o);
    if (limit == Duration::zero()) continue;
    // The duration of a server's work depends on its clients, so only its start has a timeout.
    if (IsServer(m) && m.report.phase != Phase::kStarting && m.report.phase != Phase::kForming)
      continue;
    PausingTime since = m.report.phase_since;
    // A worker in kReduce waits for servers, which may be missing.
    if (m.report.phase == Phase::kReduce) {
      if (ServerMissing(s)) continue;
      since = std::max(since, s.servers_since);
    }
    const Duration age = now - since;
    if (age < limit) continue;
    Verdict verdict = About(m, ExitCode::kRetryable, PhaseTooLong(m.report.phase, age, limit));
    // A task that was never admitted would fail the same way again, so the job ends.
    return s.generation == 0 ? End(i, std::move(verdict)) : GiveUp(i, std::move(verdict));
  }
  return std::nullopt;
}

// Returns true if an admitted member requests another generation. It does so after it lost contact
// with the chief or gave up its work.
bool AsksForGenerationAgain(const MemberInfo& m) {
  return m.in_generation && m.report.formed_generation == m.process.generation;
}

bool Admissible(PausingTime now, const MemberInfo& m, bool all_ready, const JobState& s,
                const MembershipOptions& o) {
  if (!Ready(m) || (m.in_generation && !AsksForGenerationAgain(m))) return false;
  if (s.stage == JobStage::kJoining) return all_ready || m.process.again;
  if (m.process.again || m.in_generation || all_ready || s.adopted_size == 0) return true;
  return now - s.stage_since >= o.stateless_wait;
}

std::optional<Decision> Admission(PausingTime now, const JobState& s, const MembershipOptions& o) {
  const bool all_ready = std::all_of(s.members.begin(), s.members.end(), [](const MemberInfo& m) {
    return Ready(m) || m.in_generation;
  });
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (m.in_generation && m.report.formation_error &&
        m.report.formation_error->generation == m.process.generation) {
      Verdict verdict = About(m, m.report.formation_error->code, m.report.formation_error->message);
      return verdict.code == ExitCode::kRetryable ? GiveUp(i, std::move(verdict))
                                                  : End(i, std::move(verdict));
    }
    if (Admissible(now, m, all_ready, s, o))
      return Make(Action::kForm, m.declared.task.DisplayName() + " is ready", i);
  }
  return std::nullopt;
}

std::optional<Decision> Needed(PausingTime now, const JobState& s, const MembershipOptions& o,
                               std::vector<int> missing, size_t spare) {
  if (missing.size() <= spare) return std::nullopt;
  std::sort(missing.begin(), missing.end(), [&](int a, int b) {
    return MissingSince(s.members[a], s) < MissingSince(s.members[b], s);
  });
  const MemberInfo& first = s.members[missing[0]];
  // The time for which more members have been missing than may be missing.
  const Duration age = now - MissingSince(s.members[missing[spare]], s);
  if (age >= o.rejoin)
    return End(missing[0], About(first, ExitCode::kRetryable,
                                 fmt::format("{}; no process took its place within {:g} s "
                                             "(timeouts.rejoin)",
                                             first.why_missing, Seconds(o.rejoin))));
  size_t coming = 0;  // Members that may still come.
  for (const int i : missing) coming += s.members[i].abandoned.empty() ? 1 : 0;
  if (missing.size() - coming <= spare) return std::nullopt;
  for (const int i : missing) {
    const MemberInfo& m = s.members[i];
    if (!m.abandoned.empty()) return End(i, About(m, ExitCode::kRetryable, m.abandoned));
  }
  return std::nullopt;
}

// Ends the job if too many servers, or all workers, stay away.
std::optional<Decision> Missed(PausingTime now, const JobState& s, const MembershipOptions& o) {
  std::vector<int> servers, workers;
  int declared_workers = 0;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (!IsServer(m)) ++declared_workers;
    if (!m.process.joined) (IsServer(m) ? servers : workers).push_back(i);
  }
  if (auto end = Needed(now, s, o, std::move(servers), static_cast<size_t>(o.spare_servers)))
    return end;
  return Needed(now, s, o, std::move(workers),
                static_cast<size_t>(std::max(0, declared_workers - 1)));
}

class Independent final : public MembershipPolicy {
 public:
  explicit Independent(const MembershipOptions& options) : MembershipPolicy(options) {}

  // Forms a generation that contains only `member`.
  NewGeneration Form(PausingTime now, uint64_t id, int member, JobState* s) const override {
    MemberInfo& m = s->members[member];
    const bool again = m.process.again || m.in_generation;
    if (s->stage == JobStage::kJoining) {
      s->stage = JobStage::kRunning;
      s->stage_since = now;
    }
    m.process.generation = s->generation = id;
    m.in_generation = true;
    m.report.waiting = m.report.finished = false;
    m.report.phase = Phase::kForming;  // Until the member reports.
    m.report.phase_since = now;
    m.admitted = m.process.incarnation;
    if (IsServer(m)) s->servers_since = now;
    return {.id = id, .members = {member}, .newest = member, .started = true, .again = again};
  }
  uint64_t GenerationOf(const JobState&, const MemberInfo& m) const override {
    return m.process.generation;
  }
  bool IsHeldUp(const JobState& s) const override {
    if (s.stage == JobStage::kJoining) return true;
    return s.stage == JobStage::kRunning &&
           std::any_of(s.members.begin(), s.members.end(), [](const MemberInfo& m) {
             return IsServer(m) && !m.in_generation && m.abandoned.empty();
           });
  }

  MemberInfo Absent(PausingTime now, const JobState& s, const MemberInfo& lost) const override {
    MemberInfo absent = chief::Absent(now, s, lost, options_);
    absent.in_generation = false;
    return absent;
  }
  std::string Replace(int member, JobState* s) const override {
    MemberInfo& m = s->members[member];
    if (std::exchange(m.admitted, 0) != 0) m.in_generation = false;
    return "";
  }
  std::string Return(const ReturningProcess& process, int member, JobState* s) const override {
    if (process.generation != 0) return "";
    // The member closed its session, and returns with its state.
    s->members[member].in_generation = false;
    s->members[member].process.again = process.holds_state;
    return "";
  }
  bool ContinueWithout(int member, const std::string& why, JobState* s) const override {
    if (Fresh(*s)) return false;
    s->members[member].abandoned = why;
    return true;
  }
  bool WaitsForRestart(const MemberInfo&) const override { return true; }

 private:
  Decision DecideNext(PausingTime now, const JobState& s) const override;
};

Decision Independent::DecideNext(PausingTime now, const JobState& s) const {
  const MembershipOptions& o = options_;
  if (auto decision = OwnFailure(s)) return *std::move(decision);
  // The other members do not depend on the lost one.
  if (auto lost = FirstLost(now, s, o, /*suspected=*/false))
    return Make(Action::kDrop, std::move(lost->why), lost->member);
  if (auto decision = PhaseDeadline(now, s, o)) return *std::move(decision);
  const bool joining = s.stage == JobStage::kJoining;
  if (joining && s.stop_requested && Fresh(s))
    return End(-1, {ExitCode::kPreempted, "", "", -1, Phase::kStarting,
                    "stopped before the first step, as asked"});
  if (auto decision = Admission(now, s, o)) return *std::move(decision);
  if (joining) {
    if (now - s.stage_since >= (Fresh(s) ? o.join : o.rejoin))
      return DecideMissingMembers(now, s, o);
    return Wait(RosterLine(now, s));
  }
  if (auto decision = Missed(now, s, o)) return *std::move(decision);
  return Wait();
}

}  // namespace

std::unique_ptr<MembershipPolicy> IndependentMembership(const MembershipOptions& options) {
  return std::make_unique<Independent>(options);
}

}  // namespace muster::chief
