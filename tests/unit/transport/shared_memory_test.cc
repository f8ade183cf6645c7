#include "common/transport/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/process/memory.h"

namespace muster::transport {
namespace {

using ::testing::HasSubstr;

// The memory of the host, or of the tightest cgroup (base/memory_test.cc).
TEST(SharedMemoryTest, WhatThereIsNoMemoryForIsRefused) {
  const auto made = SharedMemory::Create(AvailableMemory() / 2 + (uint64_t{64} << 20));
  ASSERT_FALSE(made.ok());
  EXPECT_NE(Message(made.status()).find("no room for"), std::string::npos) << made.status();
}

// A connection that has some of a shard's chunks takes the memory of these.
TEST(SharedMemoryTest, WhatLiesBetweenItsPartsTakesNoMemory) {
  constexpr uint64_t kBytes = 64 << 20, kPart = 1 << 20;
  const SharedMemory::ByteRange ranges[] = {{100, kPart}, {kBytes / 2, kBytes / 2 + kPart}};
  const auto made = SharedMemory::Create(kBytes, ranges);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto taken = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(static_cast<int>((*made)->place().fd), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  };
  EXPECT_GE(taken(), 2 * kPart - 4096);
  EXPECT_LE(taken(), 2 * kPart + 4096);
  const auto opened = SharedMemory::Open((*made)->place(), true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (const SharedMemory::ByteRange& range : ranges) {
    (*opened)->floats()[range.begin / sizeof(float)] = 7;
    EXPECT_EQ((*made)->floats()[range.begin / sizeof(float)], 7);
  }
  EXPECT_LE(taken(), 2 * kPart + 4096);
}

TEST(SharedMemoryTest, IsOneMemoryWithTwoViews) {
  const auto made = SharedMemory::Create(100'000);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->floats()[24'999], 0);
  const auto opened = SharedMemory::Open((*made)->place(), true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  (*opened)->floats()[24'999] = 7;
  EXPECT_EQ((*made)->floats()[24'999], 7);
  const auto readable = SharedMemory::Open((*made)->place(), false);
  ASSERT_TRUE(readable.ok()) << readable.status();
  EXPECT_EQ((*readable)->floats()[24'999], 7);
}

TEST(SharedMemoryTest, OutlivesItsMakerForThoseWhoHaveIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    const auto made = SharedMemory::Create(4096);
    (*made)->floats()[3] = 5;
    const SharedMemory::Place place = (*made)->place();
    if (write(ends[1], &place, sizeof place) != sizeof place) _exit(1);
    pause();
  }
  SharedMemory::Place place;
  ASSERT_EQ(read(ends[0], &place, sizeof place), static_cast<ssize_t>(sizeof place));
  const auto opened = SharedMemory::Open(place, true);
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->floats()[3], 5);
  EXPECT_FALSE(SharedMemory::Open(place, true).ok()) << "a later process finds nothing";
  close(ends[0]);
  close(ends[1]);
}

TEST(SharedMemoryTest, WhatIsSomethingElseIsNotOpened) {
  const auto made = SharedMemory::Create(4096);
  ASSERT_TRUE(made.ok());
  SharedMemory::Place other = (*made)->place();
  ++other.nonce;
  EXPECT_THAT(std::string(Message(SharedMemory::Open(other, true).status())),
              HasSubstr("something else"));
  other = (*made)->place();
  other.bytes = 1 << 30;
  EXPECT_THAT(std::string(Message(SharedMemory::Open(other, true).status())),
              HasSubstr("another size"));
  other = (*made)->place();
  other.fd = -1;
  EXPECT_FALSE(SharedMemory::Open(other, true).ok());
}

TEST(SharedMemoryTest, CannotShrinkUnderAReader) {
  const auto made = SharedMemory::Create(8192);
  ASSERT_TRUE(made.ok());
  EXPECT_NE(ftruncate(static_cast<int>((*made)->place().fd), 0), 0);
  // A segment that could shrink is refused, under any name.
  const uint64_t nonce = 0x1234567890abcdef;
  const Fd fd(memfd_create("muster-1234567890abcdef", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  const absl::Status status = SharedMemory::Open({getpid(), fd.get(), 4096, nonce}, true).status();
  EXPECT_THAT(std::string(Message(status)), HasSubstr("could change"));
}

TEST(SharedMemoryTest, NoRoomIsAnError) {
  EXPECT_FALSE(SharedMemory::Create(uint64_t{1} << 60).ok());
}

}  // namespace
}  // namespace muster::transport
