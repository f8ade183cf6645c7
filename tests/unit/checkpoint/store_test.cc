#include "common/checkpoint/store.h"

#include <gmock/gmock.h>

#include "tests/unit/checkpoint/snapshots.h"

namespace muster::checkpoint {
namespace {

using testing_support::Difference;
using testing_support::MakeSnapshot;

TEST(PosixStore, WritesKeepsAndYields) {
  FileSystem& files = PosixFileSystem();
  const std::string model_dir = ::testing::TempDir() + "muster_posix_store";
  const std::string directory = model_dir + "/checkpoints";
  (void)files.Remove(model_dir);
  auto store = Store::Open(files, {directory, "t1", 2, {}}, -1);
  ASSERT_TRUE(store.ok()) << store.status();
  for (const int64_t step : {3, 6, 9, 12}) {
    const auto path = (*store)->Write(MakeSnapshot(step));
    ASSERT_TRUE(path.ok()) << path.status();
    const auto best = (*store)->MarkBest(step, "loss", static_cast<double>(step), false);
    ASSERT_TRUE(best.ok()) << best.status();
  }
  EXPECT_EQ((*store)->steps(), (std::vector<int64_t>{3, 9, 12}));
  std::vector<std::string> damaged;
  const auto newest = ReadNewest(files, model_dir, &damaged);
  ASSERT_TRUE(newest.ok() && *newest) << newest.status();
  EXPECT_EQ(Difference(**newest, MakeSnapshot(12)), "");
  EXPECT_EQ(ReadLatest(files, directory), 12);

  const auto second = Store::Open(files, {directory, "t2", 2, {}}, 12);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ExitCodeOf((*store)->Write(MakeSnapshot(15)).status()), ExitCode::kRetryable);
  EXPECT_EQ((*second)->steps(), (std::vector<int64_t>{3, 9, 12}));
  (void)files.Remove(model_dir);
}

}  // namespace
}  // namespace muster::checkpoint
