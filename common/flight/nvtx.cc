#include "common/flight/nvtx.h"

#ifdef MUSTER_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace muster::nvtx {

#ifdef MUSTER_NVTX
bool Available() { return true; }
void Push(const char* name) { nvtxRangePushA(name); }
void Pop() { nvtxRangePop(); }
#else
bool Available() { return false; }
void Push(const char*) {}
void Pop() {}
#endif

}  // namespace muster::nvtx
