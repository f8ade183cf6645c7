// Decisions for members that train together: the loss of one ends the generation of all.
#include <fmt/format.h>

#include <algorithm>

#include "chief/decision/decision_parts.h"
#include "chief/decision/describe_members.h"
#include "chief/decision/membership_policy.h"

namespace muster::chief {
namespace {

// Appends the members' positions in the current collective to `message`. The message may be a
// complete sentence of a program or a library.
std::string WithMembers(std::string message, PausingTime now, const JobState& s) {
  const std::string standings = DescribeMembers(now, s);
  if (standings.empty()) return message;
  if (message.ends_with('.')) message.pop_back();
  return fmt::format("{}; {}", message, standings);
}

// Returns the first member that reported a failed collective of this generation.
int FirstCollectiveError(const JobState& s) {
  int first = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const auto& error = s.members[i].report.collective_error;
    if (!error || error->generation != s.generation) continue;
    if (first < 0 || error->at < s.members[first].report.collective_error->at) first = i;
  }
  return first;
}

Decision Lose(const JobState& s, int member, const std::string& why) {
  const MemberInfo& m = s.members[member];
  // No generation depends on this member, and it may rejoin.
  if (s.generation == 0 || s.stage == JobStage::kJoining || !m.in_generation)
    return Make(Action::kDrop, why, member);
  Verdict verdict = About(m, ExitCode::kRetryable, why);
  verdict.step = NewestStep(s, m);
  if (verdict.step > m.report.step)
    verdict.message += fmt::format("; last heard of in step {}", m.report.step);
  Decision decision = Make(Action::kAbortGeneration, Describe(verdict), member);
  decision.verdict = std::move(verdict);
  return decision;
}

// Removes a member that is connected but makes no progress.
Decision GiveUp(const JobState& s, int member, Verdict verdict) {
  // A member that is not admitted yet is in no generation.
  const bool missed = s.members[member].in_generation;
  Decision decision =
      Make(missed ? Action::kAbortGeneration : Action::kDrop, Describe(verdict), member);
  decision.verdict = std::move(verdict);
  decision.expel = true;
  return decision;
}

std::optional<Decision> Lost(PausingTime now, const JobState& s, const MembershipOptions& o) {
  const bool suspected = s.stage == JobStage::kRunning && FirstCollectiveError(s) >= 0;
  std::optional<MemberLoss> lost = FirstLost(now, s, o, suspected);
  if (!lost) return std::nullopt;
  // After a broken connection, the others have not waited long enough to report positions.
  if (s.members[lost->member].process.connected)
    lost->why = WithMembers(std::move(lost->why), now, s);
  return Lose(s, lost->member, lost->why);
}

// Returns the member that `waiter` waits for in a collective: of the members that have not entered
// it, the one furthest behind. Returns -1 if all have entered.
int BlockingMember(const JobState& s, int waiter) {
  int culprit = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (i == waiter || !m.process.joined || !m.in_generation || m.report.finished) continue;
    const bool in_reduce =
        m.report.phase == Phase::kReduce && m.report.step >= s.members[waiter].report.step;
    if (HasReached(s.members[waiter], m).value_or(in_reduce)) continue;
    if (culprit < 0 || m.report.step < s.members[culprit].report.step ||
        (m.report.step == s.members[culprit].report.step &&
         m.report.phase_since < s.members[culprit].report.phase_since))
      culprit = i;
  }
  return culprit;
}

std::optional<Decision> PhaseDeadline(PausingTime now, const JobState& s,
                                      const MembershipOptions& o) {
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    const Duration limit = PhaseLimit(m, o);
    if (limit == Duration::zero()) continue;
    // After the end of a generation the timeout starts again, to let the member return.
    const Duration age =
        now - (s.stage == JobStage::kJoining ? std::max(m.report.phase_since, s.stage_since)
                                             : m.report.phase_since);
    if (age < limit) continue;
    const int culprit = m.report.phase == Phase::kReduce ? BlockingMember(s, i) : -1;
    if (culprit < 0) {
      Verdict verdict = About(m, ExitCode::kRetryable,
                              WithMembers(PhaseTooLong(m.report.phase, age, limit), now, s));
      // A task that never trained would fail the same way again, so the job ends.
      return s.generation == 0 ? End(i, std::move(verdict)) : GiveUp(s, i, std::move(verdict));
    }
    const std::string_view name = PhaseName(m.report.phase);
    const MemberInfo& c = s.members[culprit];
    return GiveUp(
        s, culprit,
        About(c, ExitCode::kRetryable,
              WithMembers(
                  fmt::format("in phase '{}' for {:.1f} s while {} waits for it in '{}' for {:.1f} "
                              "s; timeouts.phase.{} is {:g} s",
                              PhaseName(c.report.phase), Seconds(now - c.report.phase_since),
                              m.declared.task.DisplayName(), name, Seconds(age), name,
                              Seconds(limit)),
                  now, s)));
  }
  return std::nullopt;
}

std::optional<Decision> CollectiveError(PausingTime now, const JobState& s,
                                        const MembershipOptions& o) {
  const int first = FirstCollectiveError(s);
  if (first < 0) return std::nullopt;
  const MemberInfo& m = s.members[first];
  if (now - m.report.collective_error->at < o.root_cause_wait)
    return Wait(fmt::format("{} reports: {}", m.declared.task.DisplayName(),
                            m.report.collective_error->message));
  // This error follows from another one. No member is known to be lost, so none is dropped.
  return Make(Action::kAbortGeneration, WithMembers(m.report.collective_error->message, now, s));
}

Decision DecideJoining(PausingTime now, const JobState& s, const MembershipOptions& o) {
  // Before the first step, the members cannot agree on a step at which to stop.
  if (s.stop_requested && Fresh(s) && !MayAwaitSurvivors(now, s, o))
    return End(-1, {ExitCode::kPreempted, "", "", -1, Phase::kStarting,
                    "stopped before the first step, as asked"});
  for (const bool with_backing_off : {false, true})
    if (std::string why = ReasonForFewer(now, s, o, with_backing_off); !why.empty())
      return Make(Action::kForm, std::move(why));
  if (now - s.stage_since >= (Fresh(s) ? o.join : o.rejoin)) return DecideMissingMembers(now, s, o);
  return Wait(RosterLine(now, s));
}

Decision FailedFormation(const JobState& s, int member, const std::string& why,
                         const MembershipOptions& o) {
  const int attempt = s.failed_formations + 1;
  if (attempt < o.max_failed_formations)
    return Make(Action::kAbortGeneration, fmt::format("formation {} of {} failed: {}", attempt,
                                                      o.max_failed_formations, why));
  Verdict verdict{ExitCode::kRetryable,
                  "",
                  "",
                  -1,
                  Phase::kForming,
                  fmt::format("{} formations failed; the last one: {}", attempt, why)};
  return End(member, std::move(verdict));
}

Decision DecideForming(PausingTime now, const JobState& s, const MembershipOptions& o) {
  int first = -1;
  bool all = true;
  List unformed;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (!m.in_generation) continue;
    const auto& error = m.report.formation_error;
    if (error && error->generation == s.generation &&
        (first < 0 || error->at < s.members[first].report.formation_error->at))
      first = i;
    if (m.report.formed_generation != s.generation) {
      all = false;
      unformed.AddTask(m);
    }
  }
  if (first >= 0) {
    const ReportedError& error = *s.members[first].report.formation_error;
    // A wrong configuration fails the same way each time.
    if (error.code != ExitCode::kRetryable)
      return End(first, {error.code, s.members[first].declared.task.ToString(),
                         s.members[first].process.host, -1, Phase::kForming, error.message});
    return FailedFormation(s, first, error.message, o);
  }
  if (all) return Make(Action::kStart, "all members have formed");
  if (now - s.stage_since >= o.formation)
    return FailedFormation(
        s, -1, fmt::format("{} did not form within {:g} s", unformed.text(), Seconds(o.formation)),
        o);
  return Wait("forming: waiting for " + unformed.text());
}

// Finished members wait for the others. A member that neither finishes nor makes progress ends the
// job and is named as the cause.
Decision DecideFinished(PausingTime now, const JobState& s, const MembershipOptions& o) {
  const MemberInfo* first = nullptr;
  for (const MemberInfo& m : s.members) {
    if (m.in_generation && m.report.finished &&
        (first == nullptr || m.report.finished_at < first->report.finished_at))
      first = &m;
  }
  if (first == nullptr) return Wait();
  bool all = true;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (!m.in_generation) continue;
    if (m.report.finished) {
      if (m.report.last_step != first->report.last_step ||
          m.report.outcome != first->report.outcome)
        return End(i, About(m, ExitCode::kProgramFailed,
                            fmt::format("finished after step {} with exit code {}, {} after step "
                                        "{} with {}: the loops differ between tasks",
                                        m.report.last_step, static_cast<int>(m.report.outcome),
                                        first->declared.task.DisplayName(), first->report.last_step,
                                        static_cast<int>(first->report.outcome))));
      continue;
    }
    all = false;
    const bool working = m.report.phase == Phase::kSave || m.report.phase == Phase::kEvaluate;
    if (!working && now - std::max(first->report.finished_at, m.report.phase_since) >= o.end)
      return End(i, About(m, ExitCode::kRetryable,
                          fmt::format("did not finish within {:g} s (timeouts.end) of {}",
                                      Seconds(o.end), first->declared.task.DisplayName())));
  }
  if (all)
    return End(-1,
               {first->report.outcome, "", "", -1, Phase::kEnding, first->report.outcome_message});
  return Wait("waiting for the last members to finish");
}

class Synchronous final : public MembershipPolicy {
 public:
  explicit Synchronous(const MembershipOptions& options) : MembershipPolicy(options) {}

  NewGeneration Form(PausingTime now, uint64_t id, int, JobState* s) const override {
    NewGeneration formed{.id = id, .members = NextMembers(now, *s, options_)};
    formed.newest = NewestMember(*s, formed.members);
    s->generation = id;
    s->stage = JobStage::kForming;
    s->stage_since = now;
    for (MemberInfo& m : s->members) m.in_generation = false;
    for (const int i : formed.members) {
      MemberInfo& m = s->members[i];
      m.in_generation = true;
      m.process.last_generation = id;
      m.process.first_step = s->members[formed.newest].report.last_step + 1;
      m.report.waiting = m.report.finished = false;
      m.report.collective_sequence = m.report.collectives_done = 0;
      m.report.phase = Phase::kForming;  // Until the member reports again.
      m.report.phase_since = now;
    }
    return formed;
  }
  uint64_t GenerationOf(const JobState& s, const MemberInfo&) const override {
    return s.generation;
  }
  bool IsHeldUp(const JobState& s) const override { return s.stage == JobStage::kJoining; }

  MemberInfo Absent(PausingTime now, const JobState& s, const MemberInfo& lost) const override {
    return chief::Absent(now, s, lost, options_);
  }
  // The others must not wait for the process that was replaced.
  std::string Replace(int member, JobState* s) const override {
    const MemberInfo& m = s->members[member];
    if (!m.in_generation || s->stage == JobStage::kJoining) return "";
    return m.declared.task.DisplayName() + " was lost: a new process took its place";
  }
  // The member gave up its session and its communicators before the chief noticed.
  std::string Return(const ReturningProcess& process, int member, JobState* s) const override {
    const MemberInfo& m = s->members[member];
    const bool together = s->stage == JobStage::kForming || s->stage == JobStage::kRunning;
    if (!together || !m.in_generation || process.generation != 0 ||
        process.highest_generation != s->generation)
      return "";
    return m.declared.task.DisplayName() +
           " had lost its connection to the chief and left the generation";
  }
  bool ContinueWithout(int member, const std::string& why, JobState* s) const override {
    if (options_.min_members > 0) return true;
    if (options_.spares == 0) return false;
    s->members[member].abandoned = why;
    const auto abandoned =
        std::count_if(s->members.begin(), s->members.end(), [](const MemberInfo& m) {
          return !m.abandoned.empty() && (m.process.gone || !m.process.joined);
        });
    return member != 0 && abandoned <= options_.spares;
  }
  bool WaitsForRestart(const MemberInfo& m) const override { return !m.process.joined; }

 private:
  Decision DecideNext(PausingTime now, const JobState& s) const override {
    const MembershipOptions& o = options_;
    if (auto decision = OwnFailure(s)) return *std::move(decision);
    if (auto decision = Lost(now, s, o)) return *std::move(decision);
    if (auto decision = PhaseDeadline(now, s, o)) return *std::move(decision);
    if (auto decision = DecideLeave(s, o)) return *std::move(decision);
    if (s.stage == JobStage::kJoining) return DecideJoining(now, s, o);
    if (s.stage == JobStage::kForming) return DecideForming(now, s, o);
    if (auto decision = CollectiveError(now, s, o)) return *std::move(decision);
    if (auto decision = DecideNewMember(now, s, o)) return *std::move(decision);
    return DecideFinished(now, s, o);
  }
};

}  // namespace

std::unique_ptr<MembershipPolicy> SynchronousMembership(const MembershipOptions& options) {
  return std::make_unique<Synchronous>(options);
}

}  // namespace muster::chief
