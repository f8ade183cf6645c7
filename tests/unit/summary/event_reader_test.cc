#include "common/summary/event_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/base/files/record.h"
#include "common/summary/event_writer.h"

namespace muster::summary {
namespace {

class EventReader : public ::testing::Test {
 protected:
  EventReader() {
    std::string name = std::filesystem::temp_directory_path() / "muster-events-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~EventReader() override { std::filesystem::remove_all(folder_); }

  // A writer's whole life; its file's path.
  std::string Write(int64_t first_step, const std::vector<int64_t>& steps,
                    const std::string& tag = "loss") {
    auto writer = EventWriter::Open(folder_, {.first_step = first_step});
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const int64_t step : steps) EXPECT_TRUE((*writer)->Scalars(step, {{tag, 0.5}}).ok());
    return (*writer)->path();
  }
  int64_t Last(const std::string& tag = "loss") { return LastStepOf(folder_, tag); }

  std::string folder_;
};

TEST_F(EventReader, FindsTheLastStepOfATag) {
  EXPECT_EQ(Last(), -1);
  EXPECT_EQ(LastStepOf(folder_ + "/none", "loss"), -1);
  Write(1, {10, 20});
  Write(1 << 20, {30}, "epoch_loss");
  EXPECT_EQ(Last(), 20);
  EXPECT_EQ(Last("epoch_loss"), 30);
  EXPECT_EQ(Last("accuracy"), -1);
}

TEST_F(EventReader, ReadsAllFilesInTheOrderOfTime) {
  Write(1, {10, 20, 30});
  Write(21, {21});  // ... which voids 30
  EXPECT_EQ(Last(), 21);
  Write(15, {});
  EXPECT_EQ(Last(), 10);
  Write(1, {});
  EXPECT_EQ(Last(), -1);
}

TEST_F(EventReader, AFileEndsWithItsFirstDamagedRecord) {
  const std::string path = Write(1, {10, 20, 30});
  const auto size = std::filesystem::file_size(path);
  // Torn anywhere in the last record.
  for (const int torn : {1, 5, 20}) {
    std::filesystem::resize_file(path, size - torn);
    EXPECT_EQ(Last(), 20) << torn;
  }
  // A flipped bit, in what comes before it too.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size) * 2 / 3);
  file.put('\x7f');
  file.close();
  EXPECT_LT(Last(), 20);
  Write(21, {25});
  EXPECT_EQ(Last(), 25);  // the next file counts all the same
}

TEST_F(EventReader, WhatIsNoEventFileHoldsNothing) {
  std::ofstream(folder_ + "/events.out.tfevents.1.host.1") << "no records at all, but some text";
  std::ofstream(folder_ + "/events.out.tfevents.2.host.1");
  std::string record;
  AppendRecord("\xff\xff no event", &record);
  std::ofstream(folder_ + "/events.out.tfevents.3.host.1") << record;
  std::ofstream(folder_ + "/notes.txt") << record;
  std::filesystem::create_directory(folder_ + "/events.out.tfevents.4.host.1");
  EXPECT_EQ(Last(), -1);
  Write(1, {10});
  EXPECT_EQ(Last(), 10);
}

}  // namespace
}  // namespace muster::summary
