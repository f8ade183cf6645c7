#include "chief/coordinator/member_stats.h"

#include <utility>

#include "chief/coordinator/admission/peer_limits.h"
#include "common/base/logging.h"
#include "common/telemetry/run_status.h"

namespace muster::chief {

void MemberStats::Keep(int member, proto::TaskStats stats, int64_t step) {
  CleanStats(&stats);
  Kept& kept = kept_[member];
  // A report without a new step does not change the pace.
  const bool moved = !kept.stats || kept.stats->steps() != stats.steps();
  kept.stats = std::move(stats);
  if (!moved) return;
  std::vector<double> others;
  for (const Kept& other : kept_) {
    if (&other != &kept && other.stats) others.push_back(other.stats->local_step_seconds());
  }
  const bool before = kept.pace.straggler;
  kept.pace = NextPace({}, kept.pace, kept.stats->local_step_seconds(), std::move(others));
  if (kept.pace.straggler != before) ReportStraggler(member, step);
}

void MemberStats::ReportStraggler(int member, int64_t step) const {
  const Kept& kept = kept_[member];
  const std::string name = tasks_[member].DisplayName();
  if (kept.pace.straggler) {
    LogWarning("{} is a straggler at step {}: {}", name, step,
               StragglerReason(kept.stats->local_step_seconds(), kept.pace.median_seconds));
  } else {
    LogInfo("{} is no longer a straggler", name);
  }
  if (on_straggler_) on_straggler_(tasks_[member], kept.pace.straggler);
}

void MemberStats::Forget(int member) {
  const Kept lost = std::exchange(kept_[member], Kept());
  if (lost.pace.straggler && on_straggler_) on_straggler_(tasks_[member], false);
}

void MemberStats::AddTo(int member, proto::MemberStatus* status) const {
  const Kept& kept = kept_[member];
  if (kept.stats) *status->mutable_stats() = *kept.stats;
  status->set_straggler(kept.pace.straggler);
}

std::map<std::string, proto::TaskStats> MemberStats::All() const {
  std::map<std::string, proto::TaskStats> all;
  for (size_t i = 0; i < kept_.size(); ++i)
    if (kept_[i].stats) all[tasks_[i].ToString()] = *kept_[i].stats;
  return all;
}

}  // namespace muster::chief
