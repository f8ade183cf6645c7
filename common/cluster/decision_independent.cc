// The members of a parameter-server job: each on its own, once all have come.
#include <fmt/format.h>

#include <algorithm>

#include "common/cluster/decision_parts.h"

namespace muster {
namespace {

bool IsServer(const MemberState& m) { return m.task.starts_with("ps:"); }

MonotonicTime MissingSince(const MemberState& m, const JobState& s) {
  return std::max(s.stage_since, m.missing_since.value_or(s.stage_since));
}

Decision GiveUp(int member, Verdict verdict) {
  Decision decision = Make(Action::kDrop, Story(verdict), member);
  decision.verdict = std::move(verdict);
  decision.expel = true;
  return decision;
}

bool ServerMissing(const JobState& s) {
  return std::any_of(s.members.begin(), s.members.end(),
                     [](const MemberState& m) { return IsServer(m) && !m.in_generation; });
}

// A member that is there and heard, but does not get on.
std::optional<Decision> PhaseDeadline(MonotonicTime now, const JobState& s,
                                      const DecisionOptions& o) {
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    const Duration limit = o.phase[static_cast<int>(m.phase)];
    if (!m.joined || m.waiting || m.finished || limit == Duration::zero()) continue;
    // What a server does, it does for as long as it is asked to.
    if (IsServer(m) && m.phase != Phase::kStarting && m.phase != Phase::kForming) continue;
    MonotonicTime since = m.phase_since;
    if (m.phase == Phase::kReduce) {  // it waits for servers, perhaps for one that is not there
      if (ServerMissing(s)) continue;
      since = std::max(since, s.servers_since);
    }
    const Duration age = now - since;
    if (age < limit) continue;
    const std::string_view name = PhaseName(m.phase);
    Verdict verdict = About(m, ExitCode::kRetryable,
                            fmt::format("in phase '{}' for {:.1f} s; timeouts.phase.{} is {:g} s",
                                        name, Seconds(age), name, Seconds(limit)));
    // A task that never was in is not given another try at what it cannot do.
    return s.generation == 0 ? End(i, std::move(verdict)) : GiveUp(i, std::move(verdict));
  }
  return std::nullopt;
}

// A member of its own generation asks for another one: it had lost touch with the chief, or with
// whatever it was doing.
bool AsksAgain(const MemberState& m) {
  return m.in_generation && m.formed_generation == m.generation;
}

bool Admissible(MonotonicTime now, const MemberState& m, bool all_ready, const JobState& s,
                const DecisionOptions& o) {
  if (!Ready(m) || (m.in_generation && !AsksAgain(m))) return false;
  if (s.stage == Stage::kJoining) return all_ready || m.again;
  if (m.again || m.in_generation || all_ready || s.adopted_size == 0) return true;
  return now - s.stage_since >= o.newcomers;
}

std::optional<Decision> Admission(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  const bool all_ready = std::all_of(s.members.begin(), s.members.end(), [](const MemberState& m) {
    return Ready(m) || m.in_generation;
  });
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (m.in_generation && m.formation_error && m.formation_error->generation == m.generation) {
      Verdict verdict = About(m, m.formation_error->code, m.formation_error->message);
      return verdict.code == ExitCode::kRetryable ? GiveUp(i, std::move(verdict))
                                                  : End(i, std::move(verdict));
    }
    if (Admissible(now, m, all_ready, s, o))
      return Make(Action::kForm, TaskText(m.task) + " is ready", i);
  }
  return std::nullopt;
}

std::optional<Decision> Needed(MonotonicTime now, const JobState& s, const DecisionOptions& o,
                               std::vector<int> missing, size_t spare) {
  if (missing.size() <= spare) return std::nullopt;
  std::sort(missing.begin(), missing.end(), [&](int a, int b) {
    return MissingSince(s.members[a], s) < MissingSince(s.members[b], s);
  });
  const MemberState& first = s.members[missing[0]];
  // From then on they were too few.
  const Duration age = now - MissingSince(s.members[missing[spare]], s);
  if (age >= o.rejoin)
    return End(missing[0], About(first, ExitCode::kRetryable,
                                 fmt::format("{}; nobody took its place within {:g} s "
                                             "(timeouts.rejoin)",
                                             first.why_missing, Seconds(o.rejoin))));
  size_t coming = 0;  // who may still come
  for (const int i : missing) coming += s.members[i].abandoned.empty() ? 1 : 0;
  if (missing.size() - coming <= spare) return std::nullopt;
  for (const int i : missing) {
    const MemberState& m = s.members[i];
    if (!m.abandoned.empty()) return End(i, About(m, ExitCode::kRetryable, m.abandoned));
  }
  return std::nullopt;
}

// Those without whom the job cannot go on, and who stay away.
std::optional<Decision> Missed(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  std::vector<int> servers, workers;
  int declared_workers = 0;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberState& m = s.members[i];
    if (!IsServer(m)) ++declared_workers;
    if (!m.joined) (IsServer(m) ? servers : workers).push_back(i);
  }
  if (auto end = Needed(now, s, o, std::move(servers), static_cast<size_t>(o.spare_servers)))
    return end;
  return Needed(now, s, o, std::move(workers),
                static_cast<size_t>(std::max(0, declared_workers - 1)));
}

}  // namespace

Decision DecideIndependent(MonotonicTime now, const JobState& s, const DecisionOptions& o) {
  if (auto decision = OwnFailure(s)) return *std::move(decision);
  // The others do not miss it.
  if (auto lost = FirstLost(now, s, o, /*suspected=*/false))
    return Make(Action::kDrop, std::move(lost->why), lost->member);
  if (auto decision = PhaseDeadline(now, s, o)) return *std::move(decision);
  const bool joining = s.stage == Stage::kJoining;
  if (joining && s.stop_requested && Fresh(s))
    return End(-1, {ExitCode::kPreempted, "", "", -1, Phase::kStarting,
                    "stopped before the first step, as asked"});
  if (auto decision = Admission(now, s, o)) return *std::move(decision);
  if (joining) {
    if (now - s.stage_since >= (Fresh(s) ? o.join : o.rejoin)) return NotAllCame(now, s, o);
    return Wait(RosterLine(now, s));
  }
  if (auto decision = Missed(now, s, o)) return *std::move(decision);
  return Wait();
}

}  // namespace muster
