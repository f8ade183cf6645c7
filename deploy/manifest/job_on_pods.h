// Checks whether a job can run in the pods of a ManifestRequest (request.h), and moves the job's
// model_dir to the volume of the pods.
#pragma once

#include <string>

#include "common/job/job.h"
#include "deploy/manifest/request.h"
#include "muster/status.h"

namespace muster {

// Returns an error if the job needs files or devices that the pods do not have. Also returns an
// error if the job sets tls.certificate, security.insecure, or a security.key_file other than
// kRunKeyFile, because the tasks in the pods prove their identity with the run key. `written` has
// the job's fields as the user wrote them in the job file and in --set. The paths in `written` are
// not resolved. The paths in `job` are resolved.
absl::Status CheckJobOnPods(const Json& written, const Job& job, const ManifestRequest& request);
// If the job's model_dir is not on the volume (kModelDirMount), adds a --set to `request` that
// moves model_dir to the volume.
void PutModelDirOnVolume(const Job& job, const std::string& job_file, ManifestRequest* request);

}  // namespace muster
