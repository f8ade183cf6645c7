// Decisions for members that join and leave while the others stay.
#include <fmt/format.h>

#include <algorithm>

#include "chief/decision/decision_parts.h"

namespace muster::chief {

bool IsBackingOff(PausingTime now, const MemberInfo& m, const MembershipOptions& o) {
  return o.min_members > 0 && m.backoff_until > now;
}

// True if the member completed its first step. The member's own report of this may not have
// arrived, so a later step of another member also counts.
bool Settled(const JobState& s, const MemberInfo& m) {
  return m.process.settled || (m.in_generation && NewestStep(s, m) > m.process.first_step);
}

MemberInfo Absent(PausingTime now, const JobState& s, const MemberInfo& lost,
                  const MembershipOptions& o) {
  MemberInfo absent;
  absent.declared = lost.declared;
  absent.process.host = lost.process.host;
  absent.report.step = lost.report.step;
  absent.report.phase = lost.report.phase;
  absent.in_generation = lost.in_generation;
  absent.abandoned = lost.abandoned;
  absent.missing_since = now;
  if (o.min_members == 0 || Settled(s, lost)) return absent;
  absent.quick_losses = lost.quick_losses;
  absent.backoff_until = lost.backoff_until;
  if (!lost.in_generation) return absent;  // No other member waits for this one.
  const int n = ++absent.quick_losses;
  if (n < 2) return absent;
  Duration hold = o.backoff;
  for (int i = 2; i < n && hold < o.max_backoff; ++i) hold *= 2;
  absent.backoff_until = now + std::min(hold, o.max_backoff);
  return absent;
}

std::vector<int> NextMembers(PausingTime now, const JobState& s, const MembershipOptions& o) {
  const bool with_backing_off = ReasonForFewer(now, s, o, /*with_held=*/false).empty();
  std::vector<int> next;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i)
    if (Ready(s.members[i]) && (with_backing_off || !IsBackingOff(now, s.members[i], o)))
      next.push_back(i);
  LeaveOutSpares(s, o, &next);
  return next;
}

std::optional<Decision> DecideLeave(const JobState& s, const MembershipOptions& o) {
  if (s.stop_requested || (o.min_members == 0 && o.spares == 0)) return std::nullopt;
  int size = 0, remaining = 0, leaver = -1;
  for (int i = 0; i < static_cast<int>(s.members.size()); ++i) {
    const MemberInfo& m = s.members[i];
    if (m.in_generation && m.report.finished) return std::nullopt;  // The job is about to end.
    size += m.in_generation ? 1 : 0;
    // Counts only joined members, because missing ones may never come.
    remaining += m.in_generation && m.process.joined ? 1 : 0;
    if (m.report.leaving && leaver < 0) leaver = i;
  }
  if (leaver < 0) return std::nullopt;
  const MemberInfo& m = s.members[leaver];
  --remaining;
  const std::string who = m.declared.task.DisplayName();
  const bool missed = m.in_generation && s.stage != JobStage::kJoining;
  const bool enough = (o.min_members > 0 && remaining >= o.min_members && 2 * remaining > size) ||
                      remaining + SparesReady(s) >= FullSize(s, o);
  if (leaver == 0 || s.generation == 0 || (m.in_generation && !enough))
    return Make(Action::kStop, fmt::format("{} was asked to stop: all stop", who));
  Decision decision = Make(missed ? Action::kAbortGeneration : Action::kDrop,
                           fmt::format("{} leaves, as asked; the others continue", who), leaver);
  decision.expel = true;
  decision.verdict =
      About(m, ExitCode::kPreempted, "stopped as asked; the others continue without");
  return decision;
}

std::string ReasonForFewer(PausingTime now, const JobState& s, const MembershipOptions& o,
                           bool with_backing_off) {
  if (std::all_of(s.members.begin(), s.members.end(), [&](const MemberInfo& m) {
        return Ready(m) && (with_backing_off || !IsBackingOff(now, m, o));
      }))
    return "all members are ready";
  if (std::string why = ReasonWithSpares(now, s, o, with_backing_off); !why.empty()) return why;
  // members[0] is the chief.
  if ((Fresh(s) && !s.all_steps_done) || !Ready(s.members[0])) return "";
  int ready = 0, before = s.generation == 0 ? s.adopted_size : 0;
  bool all_left = s.generation != 0;
  for (const MemberInfo& m : s.members) {
    before += m.in_generation ? 1 : 0;
    if (!with_backing_off && IsBackingOff(now, m, o)) continue;
    if (m.process.joined && !Ready(m)) return "";
    ready += Ready(m) ? 1 : 0;
    // The others do not wait for a member that was lost in its first step.
    const bool awaited = !m.left && m.quick_losses == 0 && m.in_generation;
    all_left = all_left && (Ready(m) || !awaited);
  }
  if (MayAwaitSurvivors(now, s, o)) return "";
  const std::string who = fmt::format("{} of {} members", ready, s.members.size());
  // A requested stop needs no further step.
  if (s.stop_requested) return fmt::format("{} continue to the step at which all stop", who);
  if (s.all_steps_done && now - s.stage_since >= o.end)
    return fmt::format(
        "{} end the job: all steps are done, and no other member joined within {:g} s", who,
        Seconds(o.end));
  if (o.min_members == 0 || ready < o.min_members || 2 * ready <= before) return "";
  if (all_left) return fmt::format("{} continue", who);
  if (now - s.stage_since < o.grace) return "";
  return fmt::format("{} continue: no other member joined within {:g} s (elastic.grace)", who,
                     Seconds(o.grace));
}

std::optional<Decision> DecideNewMember(PausingTime now, const JobState& s,
                                        const MembershipOptions& o) {
  if (s.stop_requested) return std::nullopt;
  List who;
  int training = 0;
  bool others = false, on_their_way = false;
  PausingTime first = PausingTime::max(), last = PausingTime::min();
  for (const MemberInfo& m : s.members) {
    if (m.in_generation && m.report.finished) return std::nullopt;
    training += m.in_generation ? 1 : 0;
    if (m.in_generation || IsBackingOff(now, m, o)) continue;
    if (Ready(m)) {
      who.AddTask(m);
      first = std::min(first, m.report.waiting_since);
      last = std::max(last, m.report.waiting_since);
    } else {
      others = true;
      on_their_way = on_their_way || m.process.joined;
    }
  }
  if (who.empty() || training >= FullSize(s, o)) return std::nullopt;
  const bool gathering = on_their_way || (others && now - last < o.gather);
  if (gathering && now - first < o.gather_most) return std::nullopt;
  return Make(Action::kAbortGeneration, "a new generation includes " + who.text());
}

}  // namespace muster::chief
