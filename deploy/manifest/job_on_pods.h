// Whether a job can run on the pods of a request, and what it changes for them.
#pragma once

#include <string>

#include "common/job/job.h"
#include "deploy/manifest/request.h"
#include "muster/status.h"

namespace muster {

// Returns an error for what each pod would refuse: a file that it does not have, devices that it
// does not have, or another proof of who it is than the run key. `written` has the keys as the job
// file and --set have them, with relative paths.
absl::Status CheckJobOnPods(const Json& written, const Job& job, const ManifestRequest& request);
// Adds the --set that puts model_dir on the volume, whatever folder the job file names.
void PutModelDirOnVolume(const Job& job, const std::string& job_file, ManifestRequest* request);

}  // namespace muster
