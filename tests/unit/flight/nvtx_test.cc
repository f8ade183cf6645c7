// A profiler of this test's own is told of the spans. It is linked where NVIDIA's are loaded.
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

std::vector<std::string>& Told() {
  static std::vector<std::string> told;
  return told;
}

int TakePush(const char* name) {
  Told().emplace_back(name);
  return 0;
}
int TakePop() {
  Told().emplace_back("end");
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
  EXPECT_THAT(Told(), ::testing::IsEmpty());
  UseNvtx();
  {
    const Span outer("backward");
    const Span inner("reduce");
  }
  EXPECT_THAT(Told(), ::testing::ElementsAre("backward", "reduce", "end", "end"));
}

}  // namespace
}  // namespace muster
#else

TEST(Nvtx, ABuildWithoutCudaHasNone) { EXPECT_FALSE(muster::nvtx::Available()); }

#endif
