#include "common/cluster/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/cluster/decision_parts.h"
#include "common/cluster/standings.h"

namespace muster {

Decision Make(Action action, std::string reason, int member) {
  Decision decision;
  decision.action = action;
  decision.reason = std::move(reason);
  decision.member = member;
  return decision;
}
Decision Wait(std::string reason) { return Make(Action::kWait, std::move(reason)); }

Verdict About(const MemberState& m, ExitCode code, std::string message) {
  return {code, m.task, m.host, m.step, m.phase, std::move(message)};
}

Decision End(int member, Verdict verdict) {
  Decision decision = Make(Action::kEndJob, Story(verdict), member);
  decision.verdict = std::move(verdict);
  return decision;
}

namespace {

// Why it is lost, or "" while it is not.
std::string WhyLost(MonotonicTime now, const MemberState& m, const DecisionOptions& o,
                    bool suspected) {
  if (!m.connected) {
    if (m.gone)
      return "lost: its connection broke and its port refuses connections, the process is gone";
    if (now - m.broken_at >= o.resume)
      return fmt::format("lost: its connection broke and did not come back within {:.1f} s",
                         Seconds(o.resume));
    return "";
  }
  const Duration silence = now - m.last_heard;
  if (silence >= o.heartbeat)
    return fmt::format("lost: no heartbeat for {:.1f} s (frozen, or cut off)", Seconds(silence));
  if (suspected && silence >= o.suspect)
    return fmt::format("lost: no heartbeat for {:.1f} s while others could not reach it",
                       Seconds(silence));
  return "";
}

}  // namespace

std::optional<LostMember> FirstLost(MonotonicTime now, const JobState& s, const DecisionOptions& o,
                                    bool suspected) {
  std::optional<LostMember> first;
  MonotonicTime since;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (!m.joined) continue;
    std::string why = WhyLost(now, m, o, suspected);
    if (why.empty()) continue;
    const MonotonicTime at = m.connected ? m.last_heard : m.broken_at;
    if (first && at >= since) continue;
    first = LostMember{i, std::move(why)};
    since = at;
  }
  return first;
}

std::optional<Decision> OwnFailure(const JobState& s) {
  int first = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const auto& failure = s.members[i].failure;
    if (failure && (first < 0 || failure->at < s.members[first].failure->at)) first = i;
  }
  if (first < 0) return std::nullopt;
  const MemberState& m = s.members[first];
  const ReportedFailure& f = *m.failure;
  return End(first, {f.code, m.task, f.host.empty() ? m.host : f.host, f.step, f.phase, f.message});
}

bool Fresh(const JobState& s) { return s.generation == 0 && s.adopted_size == 0; }

namespace {

// "worker 3, worker 4 and 17 others". Long lists help nobody, and this one may be made for each of
// a thousand messages.
class List {
 public:
  bool full() const { return count_ >= kShown; }
  bool empty() const { return count_ == 0; }
  void Add(const std::string& item) {
    if (!full()) text_ += (empty() ? "" : ", ") + item;
    ++count_;
  }
  void AddTask(const MemberState& m) { Add(full() ? "" : TaskText(m.task)); }
  std::string text() const {
    return count_ > kShown ? fmt::format("{} and {} others", text_, count_ - kShown) : text_;
  }

 private:
  static constexpr int kShown = 16;
  int count_ = 0;
  std::string text_;
};

// `message`, and who is in the collective that the others wait for.
std::string WithStandings(std::string message, MonotonicTime now, const JobState& s) {
  const std::string standings = Standings(now, s);
  return standings.empty() ? message : fmt::format("{}; {}", message, standings);
}

// The first reporter of a failed collective of this generation.
int FirstCollectiveError(const JobState& s) {
  int first = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const auto& error = s.members[i].collective_error;
    if (!error || error->generation != s.generation) continue;
    if (first < 0 || error->at < s.members[first].collective_error->at) first = i;
  }
  return first;
}

}  // namespace

int64_t NewestStep(const JobState& s, const MemberState& member) {
  int64_t step = member.step;
  for (const MemberState& other : s.members)
    if (other.joined && other.in_generation) step = std::max(step, other.step);
  return step;
}

namespace {

Decision Lose(const JobState& s, int member, const std::string& why, const DecisionOptions& o) {
  const MemberState& m = s.members[member];
  // Nobody misses it: it may just come again.
  if (s.generation == 0 || (o.recover && (s.stage == Stage::kJoining || !m.in_generation)))
    return Make(Action::kDrop, why, member);
  Verdict verdict = About(m, ExitCode::kRetryable, why);
  verdict.step = NewestStep(s, m);
  if (verdict.step > m.step) verdict.message += fmt::format("; last heard of in step {}", m.step);
  if (o.recover) return Make(Action::kAbortGeneration, Story(verdict), member);
  return End(member, std::move(verdict));
}

// A member that is there and heard, but does not get on.
Decision GiveUp(const JobState& s, int member, Verdict verdict, const DecisionOptions& o) {
  if (!o.recover) return End(member, std::move(verdict));
  // The generation of the others does not miss one that has yet to be taken in.
  const bool missed = s.members[member].in_generation;
  Decision decision =
      Make(missed ? Action::kAbortGeneration : Action::kDrop, Story(verdict), member);
  decision.verdict = std::move(verdict);
  decision.expel = true;
  return decision;
}

std::optional<Decision> Lost(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  const bool suspected = s.stage == Stage::kRunning && FirstCollectiveError(s) >= 0;
  std::optional<LostMember> lost = FirstLost(now, s, o, suspected);
  if (!lost) return std::nullopt;
  // The others of a broken connection have hardly begun to wait.
  if (s.members[lost->member].connected) lost->why = WithStandings(std::move(lost->why), now, s);
  return Lose(s, lost->member, lost->why, o);
}

// Whom a member that waits in a collective waits for: the one furthest behind that has not come to
// it; -1 if all are there.
int HeldUpBy(const JobState& s, int waiter) {
  int culprit = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (i == waiter || !m.joined || !m.in_generation || m.finished) continue;
    const bool in_reduce = m.phase == Phase::kReduce && m.step >= s.members[waiter].step;
    if (HasComeTo(s.members[waiter], m).value_or(in_reduce)) continue;
    if (culprit < 0 || m.step < s.members[culprit].step ||
        (m.step == s.members[culprit].step && m.phase_since < s.members[culprit].phase_since))
      culprit = i;
  }
  return culprit;
}

std::optional<Decision> PhaseDeadline(MonotonicTime now, const JobState& s,
                                      const DecisionOptions& o) {
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    const Duration limit = o.phase[static_cast<int>(m.phase)];
    if (!m.joined || m.waiting || m.finished || limit == Duration::zero()) continue;
    // From the end of a generation on it has that long again, to come back.
    const Duration age =
        now - (s.stage == Stage::kJoining ? std::max(m.phase_since, s.stage_since) : m.phase_since);
    if (age < limit) continue;
    const std::string_view name = PhaseName(m.phase);
    const int culprit = m.phase == Phase::kReduce ? HeldUpBy(s, i) : -1;
    if (culprit < 0) {
      Verdict verdict =
          About(m, ExitCode::kRetryable,
                WithStandings(fmt::format("in phase '{}' for {:.1f} s; timeouts.phase.{} is {:g} s",
                                          name, Seconds(age), name, Seconds(limit)),
                              now, s));
      // A task that never trained is not given another try at what it cannot do.
      return s.generation == 0 ? End(i, std::move(verdict)) : GiveUp(s, i, std::move(verdict), o);
    }
    const MemberState& c = s.members[culprit];
    return GiveUp(
        s, culprit,
        About(c, ExitCode::kRetryable,
              WithStandings(
                  fmt::format("in phase '{}' for {:.1f} s while {} waits for it in '{}' for {:.1f} "
                              "s; timeouts.phase.{} is {:g} s",
                              PhaseName(c.phase), Seconds(now - c.phase_since), TaskText(m.task),
                              name, Seconds(age), name, Seconds(limit)),
                  now, s)),
        o);
  }
  return std::nullopt;
}

std::optional<Decision> CollectiveError(MonotonicTime now, const JobState& s,
                                        const DecisionOptions& o) {
  const int first = FirstCollectiveError(s);
  if (first < 0) return std::nullopt;
  const MemberState& m = s.members[first];
  if (now - m.collective_error->at < o.blame)
    return Wait(fmt::format("{} reports: {}", TaskText(m.task), m.collective_error->message));
  std::string message = WithStandings(m.collective_error->message, now, s);
  // An echo: nobody is known to be lost, so nobody is dropped.
  if (o.recover) return Make(Action::kAbortGeneration, std::move(message));
  return End(first, About(m, ExitCode::kRetryable, std::move(message)));
}

// Elastic: a member that was asked to stop leaves, where enough others remain; else all stop.
std::optional<Decision> Leaver(const JobState& s, const DecisionOptions& o) {
  if (s.stop_requested || o.min_members == 0) return std::nullopt;
  int size = 0, remaining = 0, leaver = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (m.in_generation && m.finished) return std::nullopt;  // the end is near
    size += m.in_generation ? 1 : 0;
    remaining += m.in_generation && m.joined ? 1 : 0;  // of others that are missing none may come
    if (m.leaving && leaver < 0) leaver = i;
  }
  if (leaver < 0) return std::nullopt;
  const MemberState& m = s.members[leaver];
  --remaining;
  const std::string who = TaskText(m.task);
  const bool missed = m.in_generation && s.stage != Stage::kJoining;
  const bool enough = remaining >= o.min_members && 2 * remaining > size;
  if (leaver == 0 || s.generation == 0 || (m.in_generation && !enough))
    return Make(Action::kStop, fmt::format("{} was asked to stop: all stop", who));
  Decision decision = Make(missed ? Action::kAbortGeneration : Action::kDrop,
                           fmt::format("{} leaves, as asked; the others go on", who), leaver);
  decision.expel = true;
  decision.verdict = About(m, ExitCode::kPreempted, "stopped as asked; the others go on without");
  return decision;
}

// Why a generation of fewer members than declared may be formed now; "" if it may not.
std::string FewerWillDo(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  // The chief is the first; whoever has joined is on its way.
  if ((Fresh(s) && !s.through) || !Ready(s.members[0])) return "";
  int ready = 0, before = s.generation == 0 ? s.adopted_size : 0;
  bool all_left = s.generation != 0;
  for (const MemberState& m : s.members) {
    if (m.joined && !Ready(m)) return "";
    ready += Ready(m) ? 1 : 0;
    before += m.in_generation ? 1 : 0;
    all_left = all_left && (Ready(m) || m.left || !m.in_generation);
  }
  const std::string who = fmt::format("{} of {} members", ready, s.members.size());
  // A stop that was asked for is one step away.
  if (s.stop_requested) return fmt::format("{} go on to the step at which all stop", who);
  if (s.through && now - s.stage_since >= o.end)
    return fmt::format("{} end the job: all steps are done, and nobody else came within {:g} s",
                       who, Seconds(o.end));
  if (o.min_members == 0 || ready < o.min_members || 2 * ready <= before) return "";
  if (all_left) return fmt::format("{} go on", who);
  if (now - s.stage_since < o.grace) return "";
  return fmt::format("{} go on: nobody else came within {:g} s (elastic.grace)", who,
                     Seconds(o.grace));
}

}  // namespace

Decision NotAllCame(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  if (Fresh(s))
    return End(-1, {ExitCode::kRetryable, "", "", -1, Phase::kStarting,
                    fmt::format("not all members came within {:g} s (timeouts.join): {}",
                                Seconds(o.join), RosterLine(now, s))});
  // Whoever is gone says more than whoever is there, but did not come back from its program.
  int missing = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (Ready(m) || !m.in_generation) continue;
    if (missing < 0 || (s.members[missing].joined && !m.joined)) missing = i;
  }
  if (missing >= 0) {
    const int i = missing;
    const MemberState& m = s.members[i];
    return End(i, {ExitCode::kRetryable, m.task, m.host, m.step, m.phase,
                   fmt::format("{}; nobody took its place within {:g} s (timeouts.rejoin)",
                               m.joined ? "did not come back to the others" : m.why_missing,
                               Seconds(o.rejoin))});
  }
  return End(-1, {ExitCode::kRetryable, "", "", -1, Phase::kStarting,
                  fmt::format("no generation could be formed within {:g} s (timeouts.rejoin): {}",
                              Seconds(o.rejoin), RosterLine(now, s))});
}

namespace {

Decision DecideJoining(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  // No step will come at which all could agree to stop.
  if (s.stop_requested && Fresh(s))
    return End(-1, {ExitCode::kPreempted, "", "", -1, Phase::kStarting,
                    "stopped before the first step, as asked"});
  if (std::all_of(s.members.begin(), s.members.end(), Ready))
    return Make(Action::kForm, "all members are ready");
  if (std::string why = FewerWillDo(now, s, o); !why.empty())
    return Make(Action::kForm, std::move(why));
  if (now - s.stage_since >= (Fresh(s) ? o.join : o.rejoin)) return NotAllCame(now, s, o);
  return Wait(RosterLine(now, s));
}

// A generation of fewer than all takes in whoever has come since.
std::optional<Decision> Newcomer(const JobState& s) {
  if (s.stop_requested) return std::nullopt;
  List who;
  for (const MemberState& m : s.members) {
    if (m.in_generation && m.finished) return std::nullopt;
    if (!m.in_generation && Ready(m)) who.AddTask(m);
  }
  if (who.empty()) return std::nullopt;
  return Make(Action::kAbortGeneration, "taking in " + who.text());
}

Decision FailedFormation(const JobState& s, int member, const std::string& why,
                         const DecisionOptions& o) {
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

Decision DecideForming(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  int first = -1;
  bool all = true;
  List unformed;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (!m.in_generation) continue;
    const auto& error = m.formation_error;
    if (error && error->generation == s.generation &&
        (first < 0 || error->at < s.members[first].formation_error->at))
      first = i;
    if (m.formed_generation != s.generation) {
      all = false;
      unformed.AddTask(m);
    }
  }
  if (first >= 0) {
    const ReportedError& error = *s.members[first].formation_error;
    // A wrong configuration fails the same way each time.
    if (error.code != ExitCode::kRetryable)
      return End(first, {error.code, s.members[first].task, s.members[first].host, -1,
                         Phase::kForming, error.message});
    return FailedFormation(s, first, error.message, o);
  }
  if (all) return Make(Action::kStart, "all members have formed");
  if (now - s.stage_since >= o.formation)
    return FailedFormation(
        s, -1, fmt::format("{} did not form within {:g} s", unformed.text(), Seconds(o.formation)),
        o);
  return Wait("forming: waiting for " + unformed.text());
}

// Members that are through wait for those that are not; a member that neither finishes nor gets on
// with anything is named.
Decision DecideFinished(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  const MemberState* first = nullptr;
  for (const MemberState& m : s.members) {
    if (m.in_generation && m.finished && (first == nullptr || m.finished_at < first->finished_at))
      first = &m;
  }
  if (first == nullptr) return Wait();
  bool all = true;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (!m.in_generation) continue;
    if (m.finished) {
      if (m.last_step != first->last_step || m.outcome != first->outcome)
        return End(
            i, About(m, ExitCode::kProgramFailed,
                     fmt::format("finished after step {} with exit code {}, {} after step "
                                 "{} with {}: the loops differ between tasks",
                                 m.last_step, static_cast<int>(m.outcome), TaskText(first->task),
                                 first->last_step, static_cast<int>(first->outcome))));
      continue;
    }
    all = false;
    const bool working = m.phase == Phase::kSave || m.phase == Phase::kEvaluate;
    if (!working && now - std::max(first->finished_at, m.phase_since) >= o.end)
      return End(i, About(m, ExitCode::kRetryable,
                          fmt::format("did not finish within {:g} s (timeouts.end) of {}",
                                      Seconds(o.end), TaskText(first->task))));
  }
  if (all) return End(-1, {first->outcome, "", "", -1, Phase::kEnding, first->outcome_message});
  return Wait("waiting for the last members to finish");
}

Decision DecideEnding(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  List missing;
  for (const MemberState& m : s.members) {
    if ((m.connected || s.tell_all) && !m.acknowledged) missing.AddTask(m);
  }
  if (missing.empty() && s.verdict.code != ExitCode::kDone && now - s.stage_since < o.farewell) {
    // Whoever is still on its way is told the verdict, instead of waiting for a chief that is gone.
    for (const MemberState& m : s.members) {
      if (!m.joined && !m.failure && !m.missing_since)
        return Wait("a moment for " + TaskText(m.task) + ", which has not joined");
    }
  }
  if (missing.empty()) return Make(Action::kClose, "all members have left");
  const Duration limit = s.verdict.code == ExitCode::kDone ? o.end : std::min(o.end, o.farewell);
  if (now - s.stage_since >= limit)
    return Make(Action::kClose, fmt::format("no acknowledgement of the end within {:g} s: {}",
                                            Seconds(limit), missing.text()));
  return Wait("waiting for acknowledgements: " + missing.text());
}

// Of a member that is not ready.
std::string WhatIsMissing(MonotonicTime now, const MemberState& m) {
  const std::string who = TaskText(m.task);
  if (m.joined && m.connected)
    return fmt::format("{} ({} for {:.0f} s)", who, PhaseName(m.phase),
                       Seconds(now - m.phase_since));
  std::string why = m.joined ? "connection lost" : m.why_missing;
  if (m.joined || m.missing_since)
    why += fmt::format(" {:.0f} s ago", Seconds(now - (m.joined ? m.broken_at : *m.missing_since)));
  return fmt::format("{} ({}, {})", who, m.address, why);
}

}  // namespace

bool Ready(const MemberState& m) { return m.joined && m.connected && m.waiting; }

std::string_view StageName(Stage stage) {
  constexpr std::string_view kNames[] = {"joining", "forming", "running", "ending"};
  return kNames[static_cast<int>(stage)];
}

Decision Decide(MonotonicTime now, const JobState& state, const DecisionOptions& options) {
  if (state.stage == Stage::kEnding) return DecideEnding(now, state, options);
  if (options.independent) return DecideIndependent(now, state, options);
  if (auto decision = OwnFailure(state)) return *std::move(decision);
  if (auto decision = Lost(now, state, options)) return *std::move(decision);
  if (auto decision = PhaseDeadline(now, state, options)) return *std::move(decision);
  if (auto decision = Leaver(state, options)) return *std::move(decision);
  if (state.stage == Stage::kJoining) return DecideJoining(now, state, options);
  if (state.stage == Stage::kForming) return DecideForming(now, state, options);
  if (auto decision = CollectiveError(now, state, options)) return *std::move(decision);
  if (auto decision = Newcomer(state)) return *std::move(decision);
  return DecideFinished(now, state, options);
}

Duration AllowForLateness(MonotonicTime now, JobState* state, const DecisionOptions& options) {
  const Duration gap = now - state->decided_at;
  state->decided_at = now;
  if (gap < options.late) return Duration::zero();
  auto move = [now, gap](MonotonicTime* t) { *t = std::min(now, *t + gap); };
  move(&state->started);
  move(&state->stage_since);
  move(&state->servers_since);
  for (MemberState& m : state->members) {
    move(&m.broken_at);
    move(&m.last_heard);
    move(&m.phase_since);
    move(&m.collective_since);
    move(&m.finished_at);
    if (m.missing_since) move(&*m.missing_since);
    if (m.formation_error) move(&m.formation_error->at);
    if (m.collective_error) move(&m.collective_error->at);
  }
  return gap;
}

std::string RosterLine(MonotonicTime now, const JobState& state) {
  int ready = 0;
  List missing;
  for (const MemberState& m : state.members) {
    if (Ready(m) || (m.in_generation && m.generation != 0)) {
      ++ready;
    } else {
      missing.Add(missing.full() ? "" : WhatIsMissing(now, m));
    }
  }
  return fmt::format("{}/{} joined{}{}", ready, state.members.size(),
                     missing.empty() ? "" : ", missing ", missing.text());
}

int NewestMember(const JobState& state) {
  int newest = -1;
  for (int i = 0; i < static_cast<int>(state.members.size()); ++i) {
    if (!Ready(state.members[i])) continue;
    if (newest < 0 || state.members[i].last_step > state.members[newest].last_step) newest = i;
  }
  return newest;
}

}  // namespace muster
