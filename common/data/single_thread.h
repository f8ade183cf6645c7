// Keeps LibTorch single-threaded in threads that load examples.
#pragma once

namespace muster::data {

// After this call, LibTorch operations of the calling thread run only on this thread. Does not call
// at::set_num_threads, because it would also affect threads that start to use LibTorch afterwards,
// such as the replicas' threads.
void UseOneIntraOpThread();

}  // namespace muster::data
