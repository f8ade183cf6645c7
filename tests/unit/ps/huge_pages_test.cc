#include "common/push_pull/rows/huge_pages.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {
namespace {

constexpr size_t kHugePage = 2 << 20;

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
  EXPECT_TRUE(std::all_of(block.at, block.at + block.bytes, [&](unsigned char byte) {
    return byte == block.content;
  })) << block.bytes;
  FreeInHugePages(block.at, block.bytes);
}

// Whether the kernel was asked for huge pages at this address: "hg" in the flags of the mapping.
bool IsAdvised(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      here = begin <= reinterpret_cast<uintptr_t>(address) &&
             reinterpret_cast<uintptr_t>(address) < end;
    if (here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(HugePages, BlocksOfAllSizesDoNotOverlapAndAllMemoryIsFreed) {
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
  EXPECT_LE(SharedHugePages(), 1u) << "freed blocks merge to whole pages";
}

TEST(HugePages, SizesAreRoundedUp) {
  EXPECT_EQ(HugePageBlockSize(1), 1024u);
  EXPECT_EQ(HugePageBlockSize(1025), 2048u);
  EXPECT_EQ(HugePageBlockSize(1 << 20), 1u << 20);
  EXPECT_EQ(HugePageBlockSize((1 << 20) + 1), kHugePage);
  EXPECT_EQ(HugePageBlockSize(kHugePage + 1), 2 * kHugePage);
}

TEST(HugePages, TheKernelIsAskedForThem) {
  const Block probe = Take(1, 1);
  const bool shared = SharedHugePages() > 0;
  if (!shared) {
    Return(probe);
    GTEST_SKIP() << "a sanitizer looks at each block";
  }
  const Block large = Take(3 << 20, 2);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.at) % kHugePage, 0u);
  if (IsAdvised(probe.at)) {
    EXPECT_TRUE(IsAdvised(large.at));
    EXPECT_TRUE(IsAdvised(large.at + (3 << 20) - 1)) << "all of the last page";
  } else {
    EXPECT_FALSE(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good())
        << "this kernel has huge pages";
  }
  Return(large);
  Return(probe);
}

TEST(HugePages, ATableFreesItsBlocks) {
  const size_t before = SharedHugePages();
  {
    const auto table = EmbeddingTable::Make({.width = 16, .rule = AdagradSpec{}, .shards = 4});
    std::vector<uint64_t> keys(50'000);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
    ASSERT_TRUE(table->Push(keys, std::vector<float>(keys.size() * 16), 0.1, true).ok());
    if (before > 0) {
      EXPECT_GT(SharedHugePages(), before);
    }
  }
  EXPECT_LE(SharedHugePages(), std::max<size_t>(before, 1));
}

}  // namespace
}  // namespace muster::push_pull
