// Checks whether a job can run on the pods of a request, and adapts its model_dir to them.
#pragma once

#include <string>

#include "common/job/job.h"
#include "deploy/manifest/request.h"
#include "muster/status.h"

namespace muster {

// Returns an error if the job would fail in each pod: if it needs files or devices that pods do not
// have, or an identity other than the run key. `written` has the keys of the job file and --set
// before paths are resolved.
absl::Status CheckJobOnPods(const Json& written, const Job& job, const ManifestRequest& request);
// Adds a --set that moves model_dir to the volume, unless it is there.
void PutModelDirOnVolume(const Job& job, const std::string& job_file, ManifestRequest* request);

}  // namespace muster
