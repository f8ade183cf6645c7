// LibTorch's intra-op threads, for the calling thread alone: for those that load examples.
#pragma once

namespace muster::data {

// From now on LibTorch operations of the calling thread run on it alone. at::set_num_threads would
// also become the number for threads that first use LibTorch later (the replicas').
void UseOneIntraOpThread();

}  // namespace muster::data
