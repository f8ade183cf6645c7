// The job of tests of what a step calls: it ends by its steps.
#pragma once

#include "common/job/job.h"

namespace muster::testing {

inline Job StepsJob(int64_t batch, int64_t steps) {
  Job job;
  job.program = "test";
  job.global_batch_size = batch;
  job.max_steps = steps;
  job.epochs = 100;  // more than the steps take
  return job;
}

}  // namespace muster::testing
