// The files that a job names, as this process finds them.
#pragma once

#include "common/train/job.h"

namespace muster {

// Adds to job->digests. A file that cannot be read has none: whoever reads it says so.
void DigestFiles(Job* job);

}  // namespace muster
