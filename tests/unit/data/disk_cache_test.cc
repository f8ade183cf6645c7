// A cache on disk: what it keeps, who shares it, and what becomes of files that are not whole.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "muster/data.h"
#include "tests/unit/data/files.h"

namespace muster::data {
namespace {

using testing::HasSubstr;

// Examples {i, [2 i, 2 i + 1]}, and how many of them were made.
struct Counted {
  explicit Counted(int64_t size, int64_t add = 0) {
    dataset = FromFunction(size, [this, add](int64_t i, const Context&) -> Example {
      ++made;
      at::Tensor pair = at::full({2}, 2 * i + add, at::kInt);
      pair.data_ptr<int>()[1] += 1;
      return {at::full({}, i, at::kLong), pair};
    });
  }
  std::atomic<int> made = 0;
  DatasetPtr dataset;
};

DatasetPtr Open(const DatasetPtr& input, const std::string& folder, const std::string& stamp = "") {
  auto cached = Cache(input, folder, stamp);
  EXPECT_TRUE(cached.ok()) << cached.status();
  return cached.ok() ? *cached : nullptr;
}

void ExpectAll(const Dataset& dataset, int64_t add = 0) {
  std::vector<int64_t> indices;
  for (int64_t i = dataset.size() - 1; i >= 0; --i) indices.push_back(i);
  const auto batch = dataset.GetBatch(indices, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ((*batch)[0].sizes(), (at::IntArrayRef{dataset.size()}));
  ASSERT_EQ((*batch)[1].sizes(), (at::IntArrayRef{dataset.size(), 2}));
  for (size_t k = 0; k < indices.size(); ++k) {
    EXPECT_EQ((*batch)[0].const_data_ptr<int64_t>()[k], indices[k]);
    EXPECT_EQ((*batch)[1].const_data_ptr<int>()[2 * k + 1], 2 * indices[k] + add + 1);
  }
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().string());
  return files;
}

TEST(DiskCache, MakesEachExampleOnceForAllWhoShareIt) {
  TempFolder folder;
  Counted first(50), second(50);
  {
    const DatasetPtr cached = Open(first.dataset, folder / "cache");
    first.made = 0;  // one was made for the shapes of examples
    ExpectAll(*cached);
    ExpectAll(*cached);
    EXPECT_EQ(first.made, 50);
  }
  // Another process of the host, or a later run.
  const DatasetPtr later = Open(second.dataset, folder / "cache");
  second.made = 0;
  ExpectAll(*later);
  const auto one = later->Get(7, {});
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(at::equal((*one)[0], at::full({}, 7, at::kLong)));
  EXPECT_EQ(second.made, 0);
  const auto none = later->GetBatch({}, {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ((*none)[1].sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(FilesIn(folder / "cache").size(), 1u);  // nothing half-made is left
}

TEST(DiskCache, ABatchIsTheCallersOwn) {
  TempFolder folder;
  Counted counted(3);
  const DatasetPtr cached = Open(counted.dataset, folder.path());
  auto batch = cached->GetBatch({0, 1, 1}, {});
  ASSERT_TRUE(batch.ok());
  (*batch)[1].fill_(99);
  ExpectAll(*cached);
}

TEST(DiskCache, OtherDataHasAnotherFile) {
  TempFolder folder;
  Counted first(5), other(5, 1000), longer(6);
  ExpectAll(*Open(first.dataset, folder.path(), "one"));
  ExpectAll(*Open(other.dataset, folder.path(), "other"), 1000);
  ExpectAll(*Open(longer.dataset, folder.path(), "one"));
  EXPECT_EQ(FilesIn(folder.path()).size(), 3u);
  ExpectAll(*Open(first.dataset, folder.path(), "one"));
}

TEST(DiskCache, ManyThreadsAndObjectsFillIt) {
  TempFolder folder;
  Counted counted(200);
  std::vector<DatasetPtr> caches;
  for (int i = 0; i < 3; ++i) caches.push_back(Open(counted.dataset, folder.path()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t index = (i * 7 + t * 31) % 200;
        const auto batch = caches[t % 3]->GetBatch({index, (index + 1) % 200}, {});
        ASSERT_TRUE(batch.ok()) << batch.status();
        EXPECT_EQ((*batch)[0].const_data_ptr<int64_t>()[0], index);
        EXPECT_EQ((*batch)[1].const_data_ptr<int>()[1], 2 * index + 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// Processes that are killed wherever they are leave nothing that is taken for an example.
TEST(DiskCache, AKilledProcessLeavesNothingWrong) {
  TempFolder folder;
  for (int round = 0; round < 8; ++round) {
    std::array<int, 2> pipe_ends = {};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      Counted counted(2000);
      const auto cached = Cache(counted.dataset, folder.path());
      for (int64_t i = 0; cached.ok() && i < 2000; ++i) {
        if (!(*cached)->Get(i, {}).ok()) break;
        if (i == 20 * round && write(pipe_ends[1], "!", 1) != 1) break;
      }
      _exit(0);
    }
    // Wherever it is after its first examples; it ends by itself where that is not at once.
    close(pipe_ends[1]);
    char begun = 0;
    EXPECT_EQ(read(pipe_ends[0], &begun, 1), 1) << "the child ended before it had kept an example";
    close(pipe_ends[0]);
    usleep(20 << round);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }
  Counted counted(2000);
  const DatasetPtr cached = Open(counted.dataset, folder.path());
  counted.made = 0;
  ExpectAll(*cached);
  EXPECT_LE(counted.made, 2000 - 20 * 7) << "what the children had kept was made again";
}

TEST(DiskCache, WhatAKilledProcessLeftWhileMakingTheFileIsReplaced) {
  TempFolder folder;
  Counted counted(50);
  ExpectAll(*Open(counted.dataset, folder.path()));
  const std::string path = FilesIn(folder.path()).at(0);
  // Before the link, and between the link and the end of the other name.
  std::filesystem::remove(path);
  WriteBytes(path + ".part", std::string(10000, 'x'));
  ExpectAll(*Open(counted.dataset, folder.path()));
  EXPECT_EQ(FilesIn(folder.path()), std::vector<std::string>{path});
  std::filesystem::create_hard_link(path, path + ".part");
  ExpectAll(*Open(counted.dataset, folder.path()));
  std::filesystem::remove(path);
  ExpectAll(*Open(counted.dataset, folder.path()));
  EXPECT_EQ(FilesIn(folder.path()), std::vector<std::string>{path});
}

// One of several processes that start together makes the file: a disk may have room for one only.
TEST(DiskCache, OneMakesTheFileAndOthersWait) {
  TempFolder folder;
  Counted counted(50);
  (void)Open(counted.dataset, folder.path());
  const std::string path = FilesIn(folder.path()).at(0), part = path + ".part";
  std::filesystem::remove(path);
  const int maker = open(part.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_GE(maker, 0);
  ASSERT_EQ(flock(maker, LOCK_EX), 0);
  std::vector<std::thread> others;
  std::atomic<int> opened = 0;
  for (int i = 0; i < 4; ++i)
    others.emplace_back([&] {
      const DatasetPtr cached = Open(counted.dataset, folder.path());
      ++opened;
      ExpectAll(*cached);
    });
  usleep(100'000);  // that they come earlier makes the test easier, not red
  EXPECT_EQ(opened, 0);
  EXPECT_EQ(FilesIn(folder.path()), std::vector<std::string>{part});
  EXPECT_EQ(std::filesystem::file_size(part), 0u);
  close(maker);  // ended without having made it
  for (std::thread& other : others) other.join();
  EXPECT_EQ(opened, 4);
  EXPECT_EQ(FilesIn(folder.path()), std::vector<std::string>{path});
}

// A host that crashed may leave such a file: the checksum has reached the disk, the example has
// not.
TEST(DiskCache, AnExampleThatDoesNotFitItsChecksumIsMadeAgain) {
  TempFolder folder;
  Counted first(10);
  ExpectAll(*Open(first.dataset, folder.path()));
  const std::string path = FilesIn(folder.path()).at(0);
  const auto size = std::filesystem::file_size(path);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(size) - 16);  // the last example's second component
  file.write("\0\0\0\0\0\0\0\0", 8);
  file.close();
  Counted second(10);
  const DatasetPtr cached = Open(second.dataset, folder.path());
  second.made = 0;
  ExpectAll(*cached);
  EXPECT_EQ(second.made, 1);
}

TEST(DiskCache, WhatCannotBeKeptIsRefusedInOneSentence) {
  TempFolder folder;
  Counted counted(1000);
  WriteBytes(folder / "file", "no folder");
  const absl::Status no_folder = Cache(counted.dataset, folder / "file").status();
  EXPECT_EQ(ExitCodeOf(no_folder), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(no_folder)), HasSubstr("cannot make the cache folder"));
  // A file that grows no further stands for a disk that is full.
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {16 << 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = Cache(counted.dataset, folder / "cache").status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ExitCodeOf(full), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(full)), HasSubstr("bytes for 1000 examples, and the disk has no "
                                                    "room for them"));
  EXPECT_TRUE(FilesIn(folder / "cache").empty());
  EXPECT_FALSE(Cache(Repeat(counted.dataset, -1), folder.path()).ok());
}

TEST(DiskCache, DamageBelowIsAnErrorAndNotKept) {
  TempFolder folder;
  std::atomic<bool> bad = true;
  const DatasetPtr below =
      FromFunction(4, [&](int64_t i, const Context&) -> absl::StatusOr<Example> {
        if (bad && i == 2) return DataError("'2.jpg' is truncated");
        return Example{at::full({}, i, at::kLong)};
      });
  const DatasetPtr cached = Open(below, folder.path());
  EXPECT_EQ(ExitCodeOf(cached->GetBatch({1, 2, 3}, {}).status()), ExitCode::kDataDamaged);
  EXPECT_TRUE(cached->GetBatch({1, 3}, {}).ok());
  bad = false;
  EXPECT_TRUE(cached->GetBatch({1, 2, 3}, {}).ok());
}

TEST(DiskCache, ExamplesOfOtherShapesAreRefused) {
  TempFolder folder;
  const DatasetPtr uneven = FromFunction(
      3, [](int64_t i, const Context&) -> Example { return {at::full({i + 1}, i, at::kLong)}; });
  const DatasetPtr cached = Open(uneven, folder.path());
  EXPECT_TRUE(cached->Get(0, {}).ok());
  // Not a DataError, which on_error "skip" would leave out.
  for (const absl::Status& refused :
       {cached->Get(1, {}).status(), cached->GetBatch({2}, {}).status()}) {
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(refused)),
                HasSubstr("a cache on disk holds examples of one shape and type"));
  }
}

}  // namespace
}  // namespace muster::data
