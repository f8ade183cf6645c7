#include "common/summary/event_reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

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

// ---- Whole folders

std::vector<int64_t> StepsOf(const RunContent& content, const std::string& tag) {
  std::vector<int64_t> steps;
  const auto found = content.scalars.find(tag);
  if (found == content.scalars.end()) return steps;
  for (const Point& point : found->second) steps.push_back(point.step);
  return steps;
}

TEST_F(EventReader, ReadsTheCurvesWithoutVoidPoints) {
  EXPECT_FALSE(HasEvents(folder_));
  EXPECT_TRUE(ReadRun(folder_).files.empty());
  Write(1, {10, 20, 30});
  Write(1 << 20, {30}, "epoch_loss");
  Write(21, {21, 22});
  EXPECT_TRUE(HasEvents(folder_));
  const RunContent content = ReadRun(folder_);
  EXPECT_THAT(StepsOf(content, "loss"), testing::ElementsAre(10, 20, 21, 22));
  EXPECT_EQ(content.scalars.count("epoch_loss"), 0u);  // void, so there is no empty curve
  EXPECT_EQ(content.scalars.at("loss")[0].value, 0.5);
  EXPECT_GT(content.scalars.at("loss")[0].wall, 1.7e9);
  ASSERT_EQ(content.starts.size(), 3u);
  EXPECT_EQ(content.starts[2].step, 21);
  EXPECT_THAT(content.starts[2].writer, testing::HasSubstr("." + std::to_string(getpid()) + "."));
  ASSERT_EQ(content.files.size(), 3u);
  EXPECT_EQ(content.files[0].unread_bytes, 0);
  EXPECT_GE(content.files[0].last, content.files[0].first);
}

TEST_F(EventReader, KeepsTheNewestPictures) {
  auto writer = EventWriter::Open(folder_);
  ASSERT_TRUE(writer.ok());
  const std::vector<uint8_t> pixels(2 * 3 * 4);
  const Pictures pictures{.count = 2, .height = 3, .width = 4, .channels = 1, .pixels = pixels};
  for (const int64_t step : {5, 10}) ASSERT_TRUE((*writer)->Images(step, "input", pictures).ok());
  ASSERT_TRUE((*writer)->Text(10, "job", "no picture").ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  const RunContent content = ReadRun(folder_);
  ASSERT_EQ(content.pictures.size(), 1u);
  const PictureSet& set = content.pictures.at("input");
  EXPECT_EQ(set.step, 10);
  EXPECT_EQ(set.width, 4);
  EXPECT_EQ(set.height, 3);
  ASSERT_EQ(set.files.size(), 2u);
  EXPECT_EQ(set.files[1].substr(1, 3), "PNG");
}

TEST_F(EventReader, TellsWhatItCouldNotRead) {
  const std::string path = Write(1, {10, 20, 30});
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 5);
  const RunContent torn = ReadRun(folder_);
  EXPECT_THAT(StepsOf(torn, "loss"), testing::ElementsAre(10, 20));
  ASSERT_EQ(torn.files.size(), 1u);
  EXPECT_GT(torn.files[0].unread_bytes, 0);
  EXPECT_LT(torn.files[0].unread_bytes, 60);
  std::ofstream(path) << "no records at all";
  EXPECT_EQ(ReadRun(folder_).files[0].unread_bytes, 17);
  EXPECT_EQ(ReadRun(folder_).files[0].first, 0);
}

TEST_F(EventReader, DoesNotWaitForAPipe) {
  ASSERT_EQ(mkfifo((folder_ + "/events.out.tfevents.1.host.1").c_str(), 0600), 0);
  EXPECT_FALSE(HasEvents(folder_));
  EXPECT_EQ(Last(), -1);
}

}  // namespace
}  // namespace muster::summary
