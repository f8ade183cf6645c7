// A test double of NCCL and of the few CUDA functions that the NCCL backend calls. It is a shared
// object that is linked in their place. Device memory is host memory, each stream is a thread, and
// all ranks of a communicator are in this process. A script makes calls fail or hang:
//
//   MUSTER_NCCL_DOUBLE="async@1#2=6; finalize@0=hang"     <where>@<rank>#<operation>=<what>
//
//   uniqueid=RESULT         ncclGetUniqueId of any rank returns RESULT.
//   init@R=RESULT           The connection of rank R fails. =hang: it never completes.
//   enqueue@R#N=RESULT      The N-th collective call of rank R fails. =hang: it stays in progress.
//                           =slow: it stays in progress for 50 polls.
//   async@R#N=RESULT        The error is reported from operation N on, whose kernel never ends.
//   kernel@R#N=hang         The kernel ends only by an abort. =wrong: it adds one to the result.
//   event@R#N=CODE          CUDA fails at the event, and in every later call on that device.
//   finalize@R=hang         The finalization never completes.
//
// Operation 0 is the one that warms the communicator up. A rule without #N applies to every
// operation.
#pragma once

#include <string>
#include <vector>

namespace nccl_double {

// Sets the script in place of the environment variable, and forgets all earlier calls.
void Reset(const std::string& script);
// Returns the calls of all ranks so far: "0 init", "1 all_reduce", "1 finalize", "1 destroy",
// "0 abort".
std::vector<std::string> Calls();
// Returns the number of communicators that were neither destroyed nor aborted, and of memory and
// events that were not freed.
int Leaks();
// Returns the calling thread's current stream on `device`, for cuda_streams.h.
void* CurrentStreamOf(int device);
void* NewStream(int device);
// Keeps the calling thread's stream on `device` busy until Release.
void Hold(int device);
void Release(int device);

}  // namespace nccl_double
