// Keeps LibTorch single-threaded in threads that load examples.
#pragma once

namespace muster::data {

// After this call, LibTorch operations of the calling thread run only on this thread. Does not call
// at::set_num_threads, which would also affect threads that later use LibTorch for the first time,
// such as the replicas' threads.
void UseOneIntraOpThread();

}  // namespace muster::data
