#include "chief/decision/describe_members.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/short_list.h"

namespace muster::chief {
namespace {

constexpr size_t kListed = 8;

std::string WhereText(const MemberInfo& m) {
  std::string where = m.process.host.empty() ? "" : "host " + m.process.host;
  if (m.process.pid != 0)
    where += fmt::format("{}pid {}", where.empty() ? "" : ", ", m.process.pid);
  return where.empty() ? where : where + ", ";
}

}  // namespace

std::optional<bool> HasReached(const MemberInfo& waiter, const MemberInfo& m) {
  if (waiter.report.collective_sequence == 0) return std::nullopt;
  return std::max(m.report.collective_sequence, m.report.collectives_done) >=
         waiter.report.collective_sequence;
}

std::string DescribeMembers(PausingTime now, const JobState& s) {
  const MemberInfo* front = nullptr;
  for (const MemberInfo& m : s.members) {
    if (!m.in_generation || m.report.collective_sequence == 0) continue;
    if (front == nullptr || m.report.collective_sequence > front->report.collective_sequence)
      front = &m;
  }
  if (front == nullptr) return "";
  std::vector<std::string> in, out;
  for (const MemberInfo& m : s.members) {
    if (!m.in_generation) continue;
    const std::string who = m.declared.task.DisplayName();
    if (m.report.collective_sequence == front->report.collective_sequence) {
      const std::string other =
          m.report.collective == front->report.collective ? "" : "in " + m.report.collective + " ";
      in.push_back(fmt::format("{} ({}{}for {:.1f} s)", who, WhereText(m), other,
                               Seconds(now - m.report.collective_since)));
    } else if (!*HasReached(*front, m)) {
      const std::string frozen = now - m.process.last_heard >= std::chrono::seconds(3)
                                     ? fmt::format(" when last heard of, {:.1f} s ago",
                                                   Seconds(now - m.process.last_heard))
                                     : "";
      out.push_back(fmt::format(
          "{} ({}step {}, {} for {:.1f} s{})", who, WhereText(m), m.report.step,
          PhaseName(m.report.phase),
          Seconds((frozen.empty() ? now : m.process.last_heard) - m.report.phase_since), frozen));
    }
  }
  const std::string what =
      fmt::format("collective {}, {}", front->report.collective_sequence, front->report.collective);
  if (out.empty()) return fmt::format("{}: in it {}", what, ShortList(in, kListed));
  return fmt::format("{}: in it {}; not in it {}", what, ShortList(in, kListed),
                     ShortList(out, kListed));
}

}  // namespace muster::chief
