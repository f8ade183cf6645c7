// Decisions for jobs with spares: fewer members train than the cluster declares, and the others
// wait to replace a lost one.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "chief/decision/decision_parts.h"

namespace muster::chief {

namespace {

// MemberInfo::in_generation is not enough: it is also true for a process that replaces a lost one.
bool WasInLastGeneration(const JobState& s, const MemberInfo& m) {
  return s.generation != 0 && m.process.last_generation == s.generation;
}

}  // namespace

int FullSize(const JobState& s, const MembershipOptions& o) {
  return static_cast<int>(s.members.size()) - o.spares;
}

int SparesReady(const JobState& s) {
  return static_cast<int>(std::count_if(
      s.members.begin(), s.members.end(),
      [](const MemberInfo& m) { return Ready(m) && !m.in_generation && !m.report.leaving; }));
}

std::string ReasonWithSpares(PausingTime now, const JobState& s, const MembershipOptions& o,
                             bool with_backing_off) {
  // members[0] is the chief. A new chief waits for members that may hold newer state.
  if (o.spares == 0 || !Ready(s.members[0]) || MayAwaitSurvivors(now, s, o)) return "";
  int ready = 0;
  for (const MemberInfo& m : s.members) {
    // A member of the last generation, or one that holds state, is preferred to a spare.
    if (m.process.joined && !Ready(m) && (WasInLastGeneration(s, m) || m.process.again)) return "";
    if (Ready(m) && (with_backing_off || !IsBackingOff(now, m, o))) ++ready;
  }
  const int needed = FullSize(s, o);
  if (ready < needed) return "";
  return fmt::format("{} of {} members are ready, and {} train (elastic.spares is {})", ready,
                     s.members.size(), needed, o.spares);
}

void LeaveOutSpares(const JobState& s, const MembershipOptions& o, std::vector<int>* ready) {
  const size_t full = FullSize(s, o);
  if (o.spares == 0 || ready->size() <= full) return;
  const auto rank = [&s](int i) {
    const MemberInfo& m = s.members[i];
    // At the start of a job, the order of arrival does not count.
    const PausingTime since = s.generation == 0 ? PausingTime() : m.report.waiting_since;
    return std::tuple(i != 0, !WasInLastGeneration(s, m), -m.report.last_step, since, i);
  };
  std::sort(ready->begin(), ready->end(), [&rank](int a, int b) { return rank(a) < rank(b); });
  ready->resize(full);
  std::sort(ready->begin(), ready->end());
}

}  // namespace muster::chief
