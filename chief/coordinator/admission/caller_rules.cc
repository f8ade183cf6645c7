#include "chief/coordinator/admission/caller_rules.h"

namespace muster::chief {

bool MayCallChief(const security::Peer& caller, std::string_view method) {
  const std::string_view task = caller.task;
  if (method == "/muster.proto.Coordinator/Status") return true;
  if (method == "/muster.proto.Coordinator/ReportFailure") return true;
  if (method == "/muster.proto.Trace/Record" || method == "/muster.proto.Trace/Read") return true;
  const bool evaluator = task.starts_with("evaluator:");
  if (method.starts_with("/muster.proto.Evaluation/")) return evaluator;
  if (method.starts_with("/muster.proto.Leases/")) return task.starts_with("worker:");
  const bool member =
      task.starts_with("chief:") || task.starts_with("worker:") || task.starts_with("ps:");
  return member &&
         (method == "/muster.proto.Coordinator/Session" || method == "/muster.proto.Flight/Keep" ||
          method.starts_with("/muster.proto.Trace/"));
}

}  // namespace muster::chief
