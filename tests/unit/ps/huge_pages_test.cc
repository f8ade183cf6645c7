#include "common/push_pull/rows/huge_pages.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {
namespace {

constexpr size_t kHugePage = 2 << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

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

// msync fails where nothing is mapped.
bool IsMapped(unsigned char* address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return msync(address - reinterpret_cast<uintptr_t>(address) % page, page, MS_ASYNC) == 0;
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
  EXPECT_EQ(HugePageBlockSize(1024), 1024u);
  EXPECT_EQ(HugePageBlockSize(1025), 2048u);
  EXPECT_EQ(HugePageBlockSize(1 << 20), 1u << 20);
  EXPECT_EQ(HugePageBlockSize((1 << 20) + 1), kHugePage);
  EXPECT_EQ(HugePageBlockSize(kHugePage), kHugePage);
  EXPECT_EQ(HugePageBlockSize(kHugePage + 1), 2 * kHugePage);
}

TEST(HugePages, TheKernelIsAskedForThem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer looks at each block";
  const Block probe = Take(1, 1);
  EXPECT_GT(SharedHugePages(), 0u);
  const Block large = Take(3 << 20, 2);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.at) % kHugePage, 0u);
  if (IsAdvised(probe.at)) {
    EXPECT_TRUE(IsAdvised(large.at));
    EXPECT_TRUE(IsAdvised(large.at + (4 << 20) - 1)) << "all of the last page";
  } else {
    EXPECT_FALSE(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good())
        << "this kernel has huge pages";
  }
  unsigned char* const last = large.at + (4 << 20) - 1;
  EXPECT_TRUE(IsMapped(last));
  Return(large);
  EXPECT_FALSE(IsMapped(last)) << "it returns to the system";
  Return(probe);
}

TEST(HugePages, ATableFreesItsBlocks) {
  const Block probe = Take(1, 1);
  const size_t before = SharedHugePages();
  {
    const auto table = EmbeddingTable::Make({.width = 16, .rule = AdagradSpec{}, .shards = 4});
    std::vector<uint64_t> keys(50'000);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
    ASSERT_TRUE(table->Push(keys, std::vector<float>(keys.size() * 16), 0.1, true).ok());
    if (!kSanitized) {
      EXPECT_GT(SharedHugePages(), before);
    }
  }
  EXPECT_LE(SharedHugePages(), before + 1) << "and one page that is free";
  Return(probe);
}

// The server catches the exception, and the worker sends the push again.
TEST(EmbeddingTable, WithoutMemoryARowHasItsInitialValuesOrDoesNotExist) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's memory does not count";
  constexpr size_t kBatch = 10'000;
  const EmbeddingTable::Options options{.width = 64, .rule = AdagradSpec{}};
  const auto table = EmbeddingTable::Make(options), other = EmbeddingTable::Make(options);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  int64_t pages = 0, data = 0, skip = 0;
  std::ifstream("/proc/self/statm") >> pages >> skip >> skip >> skip >> skip >> data;
  const rlimit limited{static_cast<rlim_t>(data * sysconf(_SC_PAGESIZE)) + (48 << 20),
                       before.rlim_max};
  std::vector<uint64_t> keys(kBatch);
  const std::vector<float> gradients(kBatch * 64);
  bool failed = false;
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limited), 0);
  for (uint64_t batch = 0; batch < 100 && !failed; ++batch) {
    std::iota(keys.begin(), keys.end(), batch * kBatch);
    try {
      (void)table->Push(keys, gradients, 0.1, true);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  ASSERT_TRUE(failed);
  int64_t rows = 0;
  table->Export([&](uint64_t key, std::span<const float> row) {
    std::vector<float> initial(64);
    ASSERT_TRUE(other->Peek({&key, 1}, initial).ok());
    ASSERT_TRUE(std::equal(initial.begin(), initial.end(), row.begin())) << key;
    ++rows;
  });
  EXPECT_EQ(rows, table->size());
  EXPECT_GT(rows, 0);
  ASSERT_TRUE(table->Push(keys, gradients, 0.1, true).ok()) << "the table stays usable";
}

}  // namespace
}  // namespace muster::push_pull
