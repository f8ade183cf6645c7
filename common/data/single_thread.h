// Limits LibTorch's intra-op threads for the calling thread only: for threads that load examples.
#pragma once

namespace muster::data {

// Makes later LibTorch operations of the calling thread run only on this thread.
// at::set_num_threads would also apply to threads that first use LibTorch later (the replicas').
void UseOneIntraOpThread();

}  // namespace muster::data
