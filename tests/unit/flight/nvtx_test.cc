// A profiler of this test receives the spans. It is linked, whereas NVIDIA's profilers are loaded.
#include "common/flight/nvtx.h"

#include <gmock/gmock.h>

#include <cstdint>

#include "common/flight/spans.h"

#ifdef MUSTER_NVTX
// The header uses this pointer, and leaves its definition to a profiler that is linked.
#define NVTX_STATIC_INJECTION_IMPL
extern "C" {
extern int (*InitializeInjectionNvtx2_fnptr)(const void* (*get)(uint32_t));
}
#include <nvtx3/nvToolsExt.h>

namespace {

std::vector<std::string>& Ranges() {
  static std::vector<std::string> ranges;
  return ranges;
}

int TakePush(const char* name) {
  Ranges().emplace_back(name);
  return 0;
}
int TakePop() {
  Ranges().emplace_back("end");
  return 0;
}

int Attach(NvtxGetExportTableFunc_t get) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&TakePush);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&TakePop);
  return 1;
}

}  // namespace

int (*InitializeInjectionNvtx2_fnptr)(const void* (*get)(uint32_t)) = &Attach;

namespace muster {
namespace {

TEST(Nvtx, EachSpanIsARangeOfItsThreadEvenIfNobodyTraces) {
  { const Span before("before"); }
  EXPECT_THAT(Ranges(), ::testing::IsEmpty());
  UseNvtx();
  {
    const Span outer("backward");
    const Span inner("reduce");
  }
  EXPECT_THAT(Ranges(), ::testing::ElementsAre("backward", "reduce", "end", "end"));
}

}  // namespace
}  // namespace muster
#else

TEST(Nvtx, ABuildWithoutCudaHasNone) { EXPECT_FALSE(muster::nvtx::Available()); }

#endif
