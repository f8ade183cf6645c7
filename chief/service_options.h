// These functions make the options of the chief's services from the job, the cluster spec and this
// task. The caller adds the options that depend on the run: the run's id, the chief's term (a
// number above the terms of all earlier owners of the model_dir), other services, and callbacks.
// The functions are pure, except that CoordinatorOptionsOf looks for a CUDA driver.
#pragma once

#include "chief/coordinator/coordinator.h"
#include "chief/evaluation/evaluation_service.h"
#include "chief/flight_service.h"
#include "chief/model_dir/checkpoints.h"
#include "chief/model_dir/publisher.h"
#include "chief/parameter_server/director/director.h"
#include "chief/trace_service.h"
#include "common/job/job.h"
#include "common/train/chief_role.h"

namespace muster::chief {

// Returns whether the job trains with parameter servers.
bool HasServers(const Job& job);

CoordinatorOptions CoordinatorOptionsOf(const ChiefRoleOptions& chief);
DirectorOptions DirectorOptionsOf(const ChiefRoleOptions& chief);
CheckpointsOptions CheckpointsOptionsOf(const ChiefRoleOptions& chief);
PublisherOptions PublisherOptionsOf(const ChiefRoleOptions& chief);
EvaluationServiceOptions EvaluationOptionsOf(const ChiefRoleOptions& chief);
FlightServiceOptions FlightOptionsOf(const ChiefRoleOptions& chief);
TraceServiceOptions TraceOptionsOf(const ChiefRoleOptions& chief);

}  // namespace muster::chief
