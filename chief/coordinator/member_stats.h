// MemberStats keeps the last measurements that members (tasks in training) have sent, and finds
// stragglers (pace.h). Measurements are shown to people and to monitoring, and affect no decision.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chief/coordinator/pace.h"
#include "common/cluster/task.h"
#include "proto/coordinator.pb.h"

namespace muster::chief {

// REQUIRES for all methods: the coordinator's mutex is held.
class MemberStats {
 public:
  // `tasks` are the members, indexed by rank. `on_straggler` is CoordinatorOptions::on_straggler.
  MemberStats(std::vector<TaskId> tasks,
              std::function<void(const TaskId& member, bool straggler)> on_straggler)
      : tasks_(std::move(tasks)), on_straggler_(std::move(on_straggler)), kept_(tasks_.size()) {}

  // Stores the measurements of a member. If the member becomes a straggler or stops being a
  // straggler, logs the change and calls `on_straggler`. `step` is the member's step, for the log.
  void Keep(int member, proto::TaskStats stats, int64_t step);
  // Called when a member is lost.
  void Forget(int member);

  // Copies the member's measurements to `status`, and sets whether the member is a straggler.
  void AddTo(int member, proto::MemberStatus* status) const;
  // Returns the measurements, keyed by task. Omits members without measurements.
  std::map<std::string, proto::TaskStats> All() const;

 private:
  struct Kept {
    std::optional<proto::TaskStats> stats;
    Pace pace;
  };
  void ReportStraggler(int member, int64_t step) const;

  const std::vector<TaskId> tasks_;
  const std::function<void(const TaskId& member, bool straggler)> on_straggler_;
  std::vector<Kept> kept_;  // Indexed by rank.
};

}  // namespace muster::chief
