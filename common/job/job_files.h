// The files that a job names, as this process finds them.
#pragma once

#include "common/job/job.h"

namespace muster {

// Adds the files' digests to job->digests. Skips a file that cannot be read: its reader reports the
// error.
void DigestFiles(Job* job);

}  // namespace muster
