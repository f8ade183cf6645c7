// Computes the digests of the files that a job names.
#pragma once

#include "common/job/job.h"

namespace muster {

// Adds the digests to job->digests. Skips files that cannot be read, because the code that uses
// such a file reports the error.
void DigestFiles(Job* job);

}  // namespace muster
