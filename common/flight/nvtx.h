// Ranges on the timeline of NVIDIA's profilers (NVTX). Calls have no effect if no profiler is
// attached. Thread-safe: ranges belong to the calling thread.
#pragma once

namespace muster::nvtx {

// Returns false in a build without CUDA. Push and Pop then have no effect.
bool Available();
void Push(const char* name);
// Ends the range of the last Push.
void Pop();

}  // namespace muster::nvtx
