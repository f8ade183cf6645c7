// Computes the digests of the data files that a job names. Tasks compare the digests to check that
// all hosts have the same files.
#pragma once

#include "common/job/job.h"

namespace muster {

// Adds a digest to job->digests for each file that job->data names. Skips files that cannot be
// read. The code that later uses such a file reports the error.
void DigestFiles(Job* job);

}  // namespace muster
