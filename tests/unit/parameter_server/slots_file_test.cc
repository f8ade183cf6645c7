#include "chief/shards/slots_file.h"

#include <gmock/gmock.h>

#include <cstring>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/store.h"
#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::chief::testing {
namespace {

using checkpoint::DType;
using checkpoint::TensorInfo;

const std::vector<TensorInfo> kTensors = {{"a.w.exp_avg", DType::kFloat32, {2, 3}},
                                          {"a.w.step", DType::kFloat32, {}}};

class SlotsFileTest : public ::testing::Test {
 protected:
  SlotsFileTest() {
    store_ = *checkpoint::Store::Open(files_, {.directory = "checkpoints", .token = "test"}, -1);
  }
  std::unique_ptr<SlotsFile> Make() {
    auto slots = SlotsFile::Make(kTensors, *store_->StageFile(checkpoint::kOptimizerFile));
    EXPECT_TRUE(slots.ok()) << Message(slots.status());
    return *std::move(slots);
  }
  checkpoint::MemoryFileSystem files_;
  std::unique_ptr<checkpoint::Store> store_;
};

// Byte for byte, with the checksum in the manifest.
TEST_F(SlotsFileTest, PiecesInAnyOrderMakeTheFileThatIsWrittenAtOnce) {
  const float moments[] = {1, 2, 3, 4, 5, 6}, step = 7;
  const std::string bytes(reinterpret_cast<const char*>(moments), sizeof moments);
  const auto slots = Make();
  slots->Put(0, 16, bytes.substr(16));
  slots->Count(1, 7);
  slots->Count(1, 5);
  slots->Put(0, 0, bytes.substr(0, 16));
  auto file = slots->Complete();
  ASSERT_TRUE(file.ok() && (*file)->Finish().ok());
  checkpoint::Snapshot snapshot;
  snapshot.state.step = 3;
  snapshot.staged = {*file};
  const auto path = store_->Write(snapshot);
  ASSERT_TRUE(path.ok()) << Message(path.status());
  checkpoint::TensorSet set;
  set.tensors = {{kTensors[0], bytes.data()}, {kTensors[1], reinterpret_cast<const char*>(&step)}};
  std::string whole;
  ASSERT_TRUE(checkpoint::WriteSafetensors(set, [&](std::string_view piece) {
                whole += piece;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(checkpoint::ReadFile(files_, *path + "/" + checkpoint::kOptimizerFile).value(), whole);
  EXPECT_TRUE(checkpoint::InspectCheckpoint(files_, *path, /*verify=*/true).health.ok());
}

TEST_F(SlotsFileTest, GathersWhatHasAnotherOrder) {
  const auto slots = Make();
  EXPECT_EQ(slots->Gather(0, 12, "abcdefghijkl"), "");
  EXPECT_EQ(slots->Gather(0, 0, "ABCDEFGHIJKL"), "ABCDEFGHIJKLabcdefghijkl");
  EXPECT_EQ(slots->Gather(0, 0, "ABCDEFGHIJKL"), "") << "the next ones";
}

TEST_F(SlotsFileTest, AFullDiskIsReportedAtTheEnd) {
  const auto slots = Make();
  files_.SetCapacity(10);
  slots->Put(0, 0, "abcd");  // the head has left no room
  slots->Put(0, 1 << 20, "abcd");
  EXPECT_TRUE(absl::IsResourceExhausted(slots->Complete().status()));
}

}  // namespace
}  // namespace muster::chief::testing
