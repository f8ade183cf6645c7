#include "chief/decision/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "chief/decision/decision_parts.h"
#include "chief/decision/membership_policy.h"
#include "common/base/short_list.h"

namespace muster::chief {

Decision Make(Action action, std::string reason, int member) {
  Decision decision;
  decision.action = action;
  decision.reason = std::move(reason);
  decision.member = member;
  return decision;
}
Decision Wait(std::string reason) { return Make(Action::kWait, std::move(reason)); }

Verdict About(const MemberInfo& m, ExitCode code, std::string message) {
  return {code,           m.declared.task.ToString(), m.process.host, m.report.step,
          m.report.phase, std::move(message)};
}

Decision End(int member, Verdict verdict) {
  Decision decision = Make(Action::kEndJob, Describe(verdict), member);
  decision.verdict = std::move(verdict);
  return decision;
}

namespace {

bool IsLost(PausingTime now, const MemberInfo& m, const MembershipOptions& o, bool suspected) {
  if (!m.process.connected) return m.process.gone || now - m.process.broken_at >= o.resume;
  return now - m.process.last_heard >= (suspected ? std::min(o.suspect, o.heartbeat) : o.heartbeat);
}

// REQUIRES: the member is lost.
std::string WhyLost(PausingTime now, const MemberInfo& m, const MembershipOptions& o) {
  if (!m.process.connected && m.process.gone)
    return "lost: its connection broke and its port refuses connections, the process is gone";
  if (!m.process.connected)
    return fmt::format("lost: its connection broke and was not restored within {:.1f} s",
                       Seconds(o.resume));
  const Duration silence = now - m.process.last_heard;
  return fmt::format(
      "lost: no heartbeat for {:.1f} s {}", Seconds(silence),
      silence >= o.heartbeat ? "(frozen, or disconnected)" : "while others could not reach it");
}

}  // namespace

std::optional<MemberLoss> FirstLost(PausingTime now, const JobState& s, const MembershipOptions& o,
                                    bool suspected) {
  int first = -1;  // Only this member's text is built, because many members may be lost.
  PausingTime since;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (!m.process.joined || !IsLost(now, m, o, suspected)) continue;
    const PausingTime at = m.process.connected ? m.process.last_heard : m.process.broken_at;
    if (first >= 0 && at >= since) continue;
    first = i;
    since = at;
  }
  if (first < 0) return std::nullopt;
  return MemberLoss{first, WhyLost(now, s.members[first], o)};
}

Duration PhaseLimit(const MemberInfo& m, const MembershipOptions& o) {
  if (!m.process.joined || m.report.waiting || m.report.finished) return Duration::zero();
  return o.phase[static_cast<int>(m.report.phase)];
}

std::string PhaseTooLong(Phase phase, Duration age, Duration limit) {
  return fmt::format("in phase '{0}' for {1:.1f} s; timeouts.phase.{0} is {2:g} s",
                     PhaseName(phase), Seconds(age), Seconds(limit));
}

std::optional<Decision> OwnFailure(const JobState& s) {
  int first = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const auto& failure = s.members[i].failure;
    if (failure && (first < 0 || failure->at < s.members[first].failure->at)) first = i;
  }
  if (first < 0) return std::nullopt;
  const MemberInfo& m = s.members[first];
  const ReportedFailure& f = *m.failure;
  return End(first, {f.code, m.declared.task.ToString(), f.host.empty() ? m.process.host : f.host,
                     f.step, f.phase, f.message});
}

void List::Add(const std::string& item) {
  if (!full()) text_ += (empty() ? "" : ", ") + item;
  ++count_;
}

std::string List::text() const {
  return text_ + AndMore(static_cast<size_t>(std::max(0, count_ - kShown)));
}

bool Fresh(const JobState& s) { return s.generation == 0 && s.adopted_size == 0; }

bool MayAwaitSurvivors(PausingTime now, const JobState& s, const MembershipOptions& o) {
  return s.generation == 0 && now - s.started < o.survivors &&
         std::any_of(s.members.begin(), s.members.end(),
                     [](const MemberInfo& m) { return !m.process.joined; });
}

int64_t NewestStep(const JobState& s, const MemberInfo& member) {
  int64_t step = member.report.step;
  for (const MemberInfo& other : s.members)
    if (other.process.joined && other.in_generation) step = std::max(step, other.report.step);
  return step;
}

Decision DecideMissingMembers(PausingTime now, const JobState& s, const MembershipOptions& o) {
  if (Fresh(s))
    return End(
        -1, {ExitCode::kRetryable, "", "", -1, Phase::kStarting,
             fmt::format(
                 "not all members joined within {:g} s (timeouts.join): {}{}", Seconds(o.join),
                 RosterLine(now, s),
                 s.last_refusal.empty()
                     ? ""
                     : fmt::format(
                           "; the last connection that failed to prove its identity came from {}",
                           s.last_refusal))});
  // Prefers a lost member as the cause to a connected one that has not returned.
  int missing = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (Ready(m) || !m.in_generation) continue;
    if (missing < 0 || (s.members[missing].process.joined && !m.process.joined)) missing = i;
  }
  if (missing >= 0) {
    const int i = missing;
    const MemberInfo& m = s.members[i];
    return End(i, {ExitCode::kRetryable, m.declared.task.ToString(), m.process.host, m.report.step,
                   m.report.phase,
                   fmt::format("{}; no process took its place within {:g} s (timeouts.rejoin)",
                               m.process.joined ? "did not return to the others" : m.why_missing,
                               Seconds(o.rejoin))});
  }
  return End(-1, {ExitCode::kRetryable, "", "", -1, Phase::kStarting,
                  fmt::format("no generation could be formed within {:g} s (timeouts.rejoin): {}",
                              Seconds(o.rejoin), RosterLine(now, s))});
}

namespace {

Decision DecideEnding(PausingTime now, const JobState& s, const MembershipOptions& o) {
  List missing;
  for (const MemberInfo& m : s.members) {
    // A session that broke just before may resume to receive the verdict.
    const bool may_resume =
        m.process.joined && !m.process.gone && now - m.process.broken_at < o.resume;
    if ((m.process.connected || may_resume || s.tell_all) && !m.report.acknowledged)
      missing.AddTask(m);
  }
  if (missing.empty() && s.verdict.code != ExitCode::kDone &&
      now - s.stage_since < o.failure_ack_timeout) {
    // A member that is still joining receives the verdict, so that it does not wait for a chief
    // that has exited.
    for (const MemberInfo& m : s.members) {
      if (!m.process.joined && !m.failure && !m.missing_since)
        return Wait("a moment for " + m.declared.task.DisplayName() + ", which has not joined");
    }
  }
  if (missing.empty()) return Make(Action::kClose, "all members have left");
  const Duration limit =
      s.verdict.code == ExitCode::kDone ? o.end : std::min(o.end, o.failure_ack_timeout);
  if (now - s.stage_since >= limit)
    return Make(Action::kClose,
                fmt::format("these tasks did not acknowledge the end within {:g} s: {}",
                            Seconds(limit), missing.text()));
  return Wait("waiting for acknowledgements: " + missing.text());
}

// Describes a member that is not ready.
std::string WhatIsMissing(PausingTime now, const MemberInfo& m) {
  const std::string who = m.declared.task.DisplayName();
  if (m.process.joined && m.process.connected)
    return fmt::format("{} ({} for {:.0f} s)", who, PhaseName(m.report.phase),
                       Seconds(now - m.report.phase_since));
  std::string why = m.process.joined ? "connection lost" : m.why_missing;
  if (m.process.joined || m.missing_since)
    why += fmt::format(" {:.0f} s ago",
                       Seconds(now - (m.process.joined ? m.process.broken_at : *m.missing_since)));
  return fmt::format("{} ({}, {})", who, m.declared.address, why);
}

}  // namespace

bool Ready(const MemberInfo& m) {
  return m.process.joined && m.process.connected && m.report.waiting;
}

std::string_view StageName(JobStage stage) {
  constexpr std::string_view kNames[] = {"joining", "forming", "running", "ending"};
  return kNames[static_cast<int>(stage)];
}

Decision MembershipPolicy::Decide(PausingTime now, const JobState& state) const {
  return state.stage == JobStage::kEnding ? DecideEnding(now, state, options_)
                                          : DecideNext(now, state);
}

std::unique_ptr<MembershipPolicy> MembershipPolicy::Of(const MembershipOptions& options) {
  return options.independent ? IndependentMembership(options) : SynchronousMembership(options);
}

Decision Decide(PausingTime now, const JobState& state, const MembershipOptions& options) {
  return MembershipPolicy::Of(options)->Decide(now, state);
}

std::string RosterLine(PausingTime now, const JobState& state) {
  int ready = 0;
  List missing;
  for (const MemberInfo& m : state.members) {
    if (Ready(m) || (m.in_generation && m.process.generation != 0)) {
      ++ready;
    } else {
      missing.Add(missing.full() ? "" : WhatIsMissing(now, m));
    }
  }
  return fmt::format("{}/{} joined{}{}", ready, state.members.size(),
                     missing.empty() ? "" : ", missing ", missing.text());
}

int NewestMember(const JobState& state, const std::vector<int>& members) {
  return *std::max_element(members.begin(), members.end(), [&](int a, int b) {
    return state.members[a].report.last_step < state.members[b].report.last_step;
  });
}

}  // namespace muster::chief
