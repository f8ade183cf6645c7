// A double of NCCL and of the few CUDA functions that the NCCL backend calls: a shared object that
// is linked in their place. Host memory is behind it, a thread behind each stream, and every rank
// of a communicator is in this process. It fails and hangs on cue:
//
//   MUSTER_NCCL_DOUBLE="async@1#2=6; finalize@0=hang"     <where>@<rank>#<operation>=<what>
//
//   uniqueid=RESULT         ncclGetUniqueId (of any rank)
//   init@R=RESULT           the connection of rank R; =hang: it is never through
//   enqueue@R#N=RESULT      the N-th collective call of rank R; =hang: it stays in progress;
//                           =slow: for 50 looks
//   async@R#N=RESULT        the error comes from then on, and the kernel never ends
//   kernel@R#N=hang         the kernel ends only by an abort; =wrong: it adds one to the result
//   event@R#N=CODE          CUDA fails there, and for good: every later call on that device too
//   finalize@R=hang         never through
//
// Operation 0 is the one that warms the communicator up. Without #N: of every operation.
#pragma once

#include <string>
#include <vector>

namespace nccl_double {

// In place of the environment variable, and forgets all that was.
void Reset(const std::string& script);
// The calls so far, of all ranks: "0 init", "1 all_reduce", "1 finalize", "1 destroy", "0 abort".
std::vector<std::string> Calls();
// Communicators that were neither destroyed nor aborted, and memory and events that were not freed.
int Leaks();
// Of the calling thread, for cuda_streams.h: the stream that its work goes to on `device`.
void* CurrentStreamOf(int device);
void* NewStream(int device);
// Keeps the calling thread's stream on `device` busy until Release.
void Hold(int device);
void Release(int device);

}  // namespace nccl_double
