// Keeps LibTorch single-threaded in threads that load examples.
#pragma once

namespace muster::data {

// Makes later LibTorch operations of the calling thread run only on this thread.
// at::set_num_threads would also affect threads that use LibTorch for the first time later, such as
// the replicas' threads.
void UseOneIntraOpThread();

}  // namespace muster::data
