#include "common/push_pull/rows/huge_pages.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace muster::push_pull {
namespace {

struct Block {
  unsigned char* at;
  size_t bytes;
  unsigned char content;
};

Block Take(size_t bytes, unsigned char content) {
  auto* const at = static_cast<unsigned char*>(AllocateInHugePages(bytes));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % 64, 0u) << bytes;
  std::memset(at, content, bytes);
  return {at, bytes, content};
}

// Checks that nobody else wrote to the block, and frees it.
void Return(const Block& block) {
  for (size_t i = 0; i < block.bytes; ++i)
    ASSERT_EQ(block.at[i], block.content) << i << " of " << block.bytes;
  FreeInHugePages(block.at, block.bytes);
}

TEST(HugePages, BlocksOfAllSizesDoNotOverlap) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([seed] {
      std::mt19937 random(seed);
      std::vector<Block> blocks;
      for (int i = 0; i < 400; ++i) {
        // From 1 byte to 4 MiB.
        const size_t most = size_t{1} << random() % 23;
        blocks.push_back(Take(1 + random() % most, static_cast<unsigned char>(random())));
        if (blocks.size() < 30) continue;
        std::swap(blocks[random() % blocks.size()], blocks.back());
        Return(blocks.back());
        blocks.pop_back();
      }
      for (const Block& block : blocks) Return(block);
    });
  for (std::thread& thread : threads) thread.join();
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(HugePages, AFreedBlockIsReused) {
  const Block first = Take(5000, 1);
  Return(first);
  const Block second = Take(8000, 2);
  EXPECT_EQ(first.at, second.at) << "both have 8192 bytes";
  Return(second);
}
#endif

TEST(HugePages, AVectorUsesThem) {
  std::vector<int, HugePageAllocator<int>> numbers;
  for (int i = 0; i < 1'000'000; ++i) numbers.push_back(i);
  for (int i = 0; i < 1'000'000; ++i) ASSERT_EQ(numbers[i], i);
}

}  // namespace
}  // namespace muster::push_pull
