// The memory of snapshots, with CUDA's registration put in its place by this test.
#include "common/train/host_memory.h"

#include <gtest/gtest.h>

#include <map>

namespace {

size_t limit = SIZE_MAX;  // of what may be registered
std::map<void*, size_t> blocks;
int refusals = 0;

size_t Registered() {
  size_t bytes = 0;
  for (const auto& [block, size] : blocks) bytes += size;
  return bytes;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int cudaHostRegister(void* block, size_t bytes,
                                                                       unsigned) {
  if (Registered() + bytes > limit) return 2;
  blocks[block] = bytes;
  return 0;
}
extern "C" __attribute__((visibility("default"))) int cudaHostUnregister(void* block) {
  return blocks.erase(block) == 1 ? 0 : 1;
}
extern "C" __attribute__((visibility("default"))) int cudaGetLastError() { return ++refusals; }

namespace muster {
namespace {

constexpr size_t kMega = size_t{1} << 20;

TEST(HostMemory, PinsAsMuchAsIsAskedForAndNoMore) {
  for (const size_t bytes :
       {3 * kMega + 64, 1300 * kMega}) {  // addresses alone: nothing touches it
    const auto memory = HostMemory::Make(bytes, /*pinned=*/true);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->size(), bytes);
    EXPECT_TRUE(memory->registered());
    EXPECT_EQ(Registered(), bytes) << "LibTorch's allocator would take a power of two";
    EXPECT_EQ(blocks.size(), 1u) << "CUDA refuses a copy that lies in two ranges";
  }
  EXPECT_TRUE(blocks.empty()) << "all is given back";
}

TEST(HostMemory, IsOrdinaryMemoryWhereNoMoreMayBePinned) {
  limit = 600 * kMega;
  const auto memory = HostMemory::Make(700 * kMega, /*pinned=*/true);
  limit = SIZE_MAX;
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(memory->registered());
  EXPECT_EQ(refusals, 1) << "the error is not left for the next call";
  memory->data()[700 * kMega - 1] = 'x';
}

TEST(HostMemory, OfReplicasOnTheCpuIsNotPinned) {
  const auto memory = HostMemory::Make(kMega, /*pinned=*/false);
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(blocks.empty());
}

}  // namespace
}  // namespace muster
