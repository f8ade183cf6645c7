// Named ranges on the timeline of NVIDIA's profilers (NVTX). Calls have no effect if no profiler is
// attached. Ranges belong to the calling thread and nest. Thread-safe.
#pragma once

namespace muster::nvtx {

// Returns false in a build without CUDA. Push and Pop have no effect in such a build.
bool Available();
// Begins a range.
void Push(const char* name);
// Ends the calling thread's innermost range.
void Pop();

}  // namespace muster::nvtx
