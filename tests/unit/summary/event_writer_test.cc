#include "common/summary/event_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/files/crc32c.h"
#include "common/base/files/record.h"
#include "proto/event.pb.h"

namespace muster::summary {
namespace {

using testing::HasSubstr;

// RFC 3720, appendix B.4, and the usual check value.
TEST(EventChecksum, GivesTheStandardsValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(Crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(""), 0u);
}

// Checks framing and checksums of every record, and returns the events.
std::vector<Event> ParseRecords(std::string_view file) {
  std::vector<Event> events;
  while (!file.empty()) {
    uint64_t size = 0;
    uint32_t length_crc = 0, data_crc = 0;
    if (file.size() < 12) ADD_FAILURE() << "torn header";
    if (file.size() < 12) break;
    std::memcpy(&size, file.data(), 8);
    std::memcpy(&length_crc, file.data() + 8, 4);
    EXPECT_EQ(length_crc, MaskedCrc32c(file.substr(0, 8)));
    if (file.size() < 16 + size) ADD_FAILURE() << "torn record";
    if (file.size() < 16 + size) break;
    const std::string_view data = file.substr(12, size);
    std::memcpy(&data_crc, file.data() + 12 + size, 4);
    EXPECT_EQ(data_crc, MaskedCrc32c(data));
    EXPECT_TRUE(events.emplace_back().ParseFromArray(data.data(), static_cast<int>(size)));
    file.remove_prefix(16 + size);
  }
  return events;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Writer : public testing::Test {
 protected:
  Writer() {
    std::string name = std::filesystem::temp_directory_path() / "muster-summary-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Writer() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(Writer, WritesScalarsByTagAndStep) {
  std::string path;
  {
    const auto writer = EventWriter::Open(folder_ + "/train", {.first_step = 41});
    ASSERT_TRUE(writer.ok()) << writer.status();
    path = (*writer)->path();
    EXPECT_THAT(path, HasSubstr("/train/events.out.tfevents."));
    // The first record is there at once: TensorBoard may look any time.
    ASSERT_EQ(ParseRecords(ReadFile(path)).size(), 2u);
    EXPECT_TRUE((*writer)->Scalars(50, {{"loss", 0.5}, {"learning_rate", 1e-3}}).ok());
    EXPECT_TRUE((*writer)->Scalars(100, {{"loss", 0.25}}).ok());
  }
  const std::vector<Event> events = ParseRecords(ReadFile(path));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].session_log().status(), SessionLog::START);
  EXPECT_EQ(events[1].step(), 41);
  EXPECT_EQ(events[2].step(), 50);
  ASSERT_EQ(events[2].summary().value_size(), 2);
  EXPECT_EQ(events[2].summary().value(0).tag(), "loss");
  EXPECT_FLOAT_EQ(events[2].summary().value(0).simple_value(), 0.5f);
  EXPECT_EQ(events[2].summary().value(1).tag(), "learning_rate");
  EXPECT_EQ(events[3].step(), 100);
  EXPECT_LT(std::abs(events[3].wall_time() - static_cast<double>(time(nullptr))), 60);
}

TEST_F(Writer, WritesTextImagesAndHistograms) {
  std::string path;
  {
    const auto writer = EventWriter::Open(folder_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    path = (*writer)->path();
    EXPECT_TRUE((*writer)->Text(1, "job", "# a title").ok());
    const std::vector<uint8_t> pixels(2 * 3 * 5 * 3);
    EXPECT_TRUE((*writer)->Images(2, "input", {2, 3, 5, 3, pixels}).ok());
    EXPECT_TRUE((*writer)->Histogram(3, "weights", DistributionOf({1, 2, NAN, NAN, NAN})).ok());
    EXPECT_TRUE((*writer)->Sync().ok());
    // Refused, and not written.
    EXPECT_THAT(Message((*writer)->Images(4, "input", {1, 3, 5, 3, pixels})),
                HasSubstr("images input: 90 bytes are not 1 x 3 x 5 x 3"));
    EXPECT_THAT(Message((*writer)->Images(4, "input", {1, 9, 5, 2, pixels})),
                HasSubstr("images input: a picture has 1 (gray)"));
  }
  const std::vector<Event> events = ParseRecords(ReadFile(path));
  ASSERT_EQ(events.size(), 5u);
  const Summary::Value& text = events[2].summary().value(0);
  EXPECT_EQ(text.metadata().plugin_data().plugin_name(), "text");
  EXPECT_TRUE(text.tensor().has_tensor_shape());
  EXPECT_EQ(text.tensor().tensor_shape().dim_size(), 0);
  EXPECT_EQ(text.tensor().string_val(0), "# a title");
  const Summary::Value& images = events[3].summary().value(0);
  EXPECT_EQ(images.metadata().plugin_data().plugin_name(), "images");
  EXPECT_EQ(images.tensor().tensor_shape().dim(0).size(), 4);
  ASSERT_EQ(images.tensor().string_val_size(), 4);
  EXPECT_EQ(images.tensor().string_val(0), "5");
  EXPECT_EQ(images.tensor().string_val(1), "3");
  EXPECT_THAT(images.tensor().string_val(3), HasSubstr("PNG"));
  EXPECT_EQ(events[4].summary().value(0).histogram().num(), 2);
  EXPECT_EQ(events[4].summary().value(1).tag(), "weights/not_finite");
  EXPECT_EQ(events[4].summary().value(1).simple_value(), 3);
}

TEST_F(Writer, WritesNothingOnceFenced) {
  absl::Status owned;
  const auto fence = [&owned] { return owned; };
  std::string path;
  {
    const auto writer = EventWriter::Open(folder_, {.fence = fence});
    ASSERT_TRUE(writer.ok());
    path = (*writer)->path();
    EXPECT_TRUE((*writer)->Scalars(1, {{"loss", 1}}).ok());
    owned = Superseded("taken");
    EXPECT_EQ((*writer)->Flush(), owned);
    owned = absl::OkStatus();  // once superseded, always
    EXPECT_FALSE((*writer)->Scalars(2, {{"loss", 1}}).ok());
    EXPECT_FALSE((*writer)->Sync().ok());
  }
  EXPECT_EQ(ParseRecords(ReadFile(path)).size(), 2u);
  owned = Superseded("taken");
  EXPECT_EQ(EventWriter::Open(folder_ + "/validation", {.fence = fence}).status(), owned);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/validation"));
}

TEST_F(Writer, KeepsWhatAFullDiskDoesNotTake) {
  absl::Status disk;
  const auto writer = EventWriter::Open(folder_, {.check_disk = [&disk] { return disk; }});
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->Scalars(1, {{"loss", 1}}).ok());
  disk = absl::ResourceExhaustedError("no space");
  EXPECT_THAT(std::string(Message((*writer)->Flush())), HasSubstr("no space"));
  EXPECT_TRUE((*writer)->Scalars(2, {{"loss", 1}}).ok());
  EXPECT_EQ(ParseRecords(ReadFile((*writer)->path())).size(), 2u);
  disk = absl::OkStatus();
  EXPECT_TRUE((*writer)->Flush().ok());
  EXPECT_EQ(ParseRecords(ReadFile((*writer)->path())).size(), 4u);
}

// TensorBoard reads files in the order of their names.
TEST_F(Writer, IsTheLastOfItsFolderWhateverClocksSay) {
  std::ofstream(folder_ + "/events.out.tfevents.4000000000.ahead.1.0") << "";
  std::string last = "events.out.tfevents.4000000000.ahead.1.0";
  for (int i = 0; i < 3; ++i) {
    const auto writer = EventWriter::Open(folder_);
    ASSERT_TRUE(writer.ok());
    const std::string name = std::filesystem::path((*writer)->path()).filename();
    EXPECT_GT(name, last);
    last = name;
  }
}

TEST_F(Writer, FlushesInTimeAndOnRequest) {
  auto lazy = EventWriter::Open(folder_, {.flush_interval = std::chrono::hours(1)});
  ASSERT_TRUE(lazy.ok());
  EXPECT_TRUE((*lazy)->Scalars(1, {{"loss", 1}}).ok());
  EXPECT_EQ(ParseRecords(ReadFile((*lazy)->path())).size(), 2u);
  EXPECT_TRUE((*lazy)->Flush().ok());
  EXPECT_EQ(ParseRecords(ReadFile((*lazy)->path())).size(), 3u);

  auto eager = EventWriter::Open(folder_, {.flush_interval = Duration::zero()});
  ASSERT_TRUE(eager.ok());
  EXPECT_NE((*eager)->path(), (*lazy)->path());
  EXPECT_TRUE((*eager)->Scalars(1, {{"loss", 1}}).ok());
  EXPECT_EQ(ParseRecords(ReadFile((*eager)->path())).size(), 3u);
}

TEST_F(Writer, NamesAFolderThatCannotBe) {
  std::ofstream(folder_ + "/file") << "in the way";
  const auto writer = EventWriter::Open(folder_ + "/file/train");
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(ExitCodeOf(writer.status()), ExitCode::kConfiguration);
  EXPECT_THAT(Message(writer.status()), HasSubstr(folder_ + "/file/train"));
}

TEST_F(Writer, SaysWhenTheDiskIsFullAndBoundsWhatItKeeps) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const auto writer = EventWriter::OnDescriptor(full, "/dev/full", {});
  EXPECT_TRUE(writer->Scalars(1, {{"loss", 1}}).ok());
  EXPECT_THAT(Message(writer->Flush()), HasSubstr("/dev/full: No space left on device"));
  EXPECT_FALSE(writer->Flush().ok());
}

// A disk that takes a part of a record, and later the rest: a pipe that is full, then drained.
TEST_F(Writer, NeverTearsARecord) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const auto writer =
      EventWriter::OnDescriptor(ends[1], "a pipe", {.flush_interval = std::chrono::hours(1)});
  constexpr int kSteps = 1000;
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(writer->Scalars(step, {{"loss", 1.0 / step}}).ok());
  }
  std::string file;
  bool refused = false;
  for (absl::Status status = writer->Flush(); true; status = writer->Flush()) {
    char bytes[1000];
    for (ssize_t size; (size = read(ends[0], bytes, sizeof bytes)) > 0;) file.append(bytes, size);
    if (status.ok()) break;
    refused = true;
  }
  close(ends[0]);
  EXPECT_TRUE(refused);
  const std::vector<Event> events = ParseRecords(file);
  ASSERT_EQ(events.size(), kSteps + 2u);
  for (int step = 1; step <= kSteps; ++step) ASSERT_EQ(events[step + 1].step(), step);
}

}  // namespace
}  // namespace muster::summary
