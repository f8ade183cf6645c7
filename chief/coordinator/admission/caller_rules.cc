#include "chief/coordinator/admission/caller_rules.h"

#include <optional>

#include "common/cluster/task.h"

namespace muster::chief {

bool MayCallChief(const security::Peer& caller, std::string_view method) {
  if (method == "/muster.proto.Coordinator/Status") return true;
  if (method == "/muster.proto.Coordinator/ReportFailure") return true;
  if (method == "/muster.proto.Trace/Record" || method == "/muster.proto.Trace/Read") return true;
  // Either the canonical name of a task or "launcher" (security::PeerFromUri).
  const std::optional<TaskId> task = ParseTaskId(caller.task);
  if (!task) return false;
  if (method.starts_with("/muster.proto.Evaluation/")) return task->type == TaskType::kEvaluator;
  if (method.starts_with("/muster.proto.Leases/")) return task->type == TaskType::kWorker;
  return task->type != TaskType::kEvaluator &&
         (method == "/muster.proto.Coordinator/Session" || method == "/muster.proto.Flight/Keep" ||
          method.starts_with("/muster.proto.Trace/"));
}

}  // namespace muster::chief
