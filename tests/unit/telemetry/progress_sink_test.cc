#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <sstream>

#include "common/base/log_writer.h"
#include "common/base/logging.h"
#include "common/telemetry/progress.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = ProgressState::Kind;

std::string ReadAll(int fd) {
  std::string text;
  char bytes[65536];
  pollfd ready = {fd, POLLIN, 0};
  while (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0) {
    const ssize_t size = read(fd, bytes, sizeof bytes);
    if (size <= 0) break;
    text.append(bytes, static_cast<size_t>(size));
  }
  return text;
}

std::vector<int64_t> Epochs(const std::string& lines) {
  std::vector<int64_t> epochs;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const auto state = ProgressFromJson(Json::parse(line));
    if (state.ok()) epochs.push_back(state->epoch);
  }
  return epochs;
}

class Sender : public testing::TestWithParam<bool> {  // a socket, or a pipe
 protected:
  void SetUp() override {
    if (GetParam()) {
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    } else {
      ASSERT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    }
    sender_ = MakeProgressSender(ends_[1]);
  }
  void TearDown() override {
    if (ends_[0] >= 0) close(ends_[0]);
  }
  int ends_[2];
  std::unique_ptr<ProgressSink> sender_;
};

TEST_P(Sender, SendsEveryEndOfAPassAndFewSteps) {
  for (int i = 0; i < 10000; ++i) sender_->Show({.kind = Kind::kStep, .epoch = 0});
  sender_->Show({.kind = Kind::kEpoch, .epoch = 1});
  sender_->Show({.kind = Kind::kEpoch, .epoch = 2});
  const auto epochs = Epochs(ReadAll(ends_[0]));
  EXPECT_LT(epochs.size(), 1000u);
  ASSERT_GE(epochs.size(), 3u);
  EXPECT_EQ(epochs.front(), 0);
  EXPECT_EQ(epochs[epochs.size() - 2], 1);
  EXPECT_EQ(epochs.back(), 2);
}

TEST_P(Sender, LosesWholeStatesWhenNobodyReads) {
  for (int i = 0; i < 10000; ++i) sender_->Show({.kind = Kind::kEpoch, .epoch = i});
  std::string lines = ReadAll(ends_[0]);
  for (int i = 10000; i < 10003; ++i) sender_->Show({.kind = Kind::kEpoch, .epoch = i});
  lines += ReadAll(ends_[0]);
  const auto epochs = Epochs(lines);  // parses every line, or throws
  EXPECT_LT(epochs.size(), 10000u);
  EXPECT_TRUE(std::is_sorted(epochs.begin(), epochs.end()));
  EXPECT_EQ(epochs.back(), 10002);
}

TEST_P(Sender, OutlivesItsReader) {
  close(ends_[0]);
  ends_[0] = -1;
  for (int i = 0; i < 3; ++i) sender_->Show({.kind = Kind::kEpoch, .epoch = i});
}

INSTANTIATE_TEST_SUITE_P(Both, Sender, testing::Bool(),
                         [](const auto& info) { return info.param ? "Socket" : "Pipe"; });

TEST(ProgressFd, ComesFromTheEnvironment) {
  unsetenv(kProgressFdVariable);
  EXPECT_FALSE(ProgressFdFromEnvironment().has_value());
  setenv(kProgressFdVariable, "1", 1);
  EXPECT_EQ(ProgressFdFromEnvironment(), 1);
  for (const char* bad : {"", "x", "-1", "987654"}) {
    setenv(kProgressFdVariable, bad, 1);
    EXPECT_FALSE(ProgressFdFromEnvironment().has_value()) << bad;
  }
  unsetenv(kProgressFdVariable);
}

// Returns the text that a terminal of 60 columns shows.
std::string Shown(const std::function<void()>& body) {
  winsize size = {24, 60, 0, 0};
  int screen = -1, tty = -1;
  if (openpty(&screen, &tty, nullptr, nullptr, &size) != 0) std::abort();
  const int saved = dup(STDERR_FILENO);
  dup2(tty, STDERR_FILENO);
  InitLogging("");
  body();
  FlushLog();
  dup2(saved, STDERR_FILENO);
  close(saved);
  InitLogging("");
  std::string text = ReadAll(screen);
  close(tty);
  close(screen);
  return text;
}

TEST(ProgressPrinter, ShowsTheBarOfAPassThatIsOverAtOnce) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Shown([] {
                  const auto printer = MakeProgressPrinter();
                  printer->Show({.done = 1, .total = 2});
                  printer->Show({.kind = Kind::kEnd});
                }),
                HasSubstr("1/2"));
  }
}

// Log lines scroll above the bar.
TEST(ProgressPrinter, TakesTheBarAwayForALogLine) {
  const std::string text = Shown([] {
    {
      const auto printer = MakeProgressPrinter();
      printer->Show({.done = 1, .total = 2});
      LogInfo("a line");
      printer->Show({.kind = Kind::kEpoch, .metrics = {{"loss", 1}}});
    }
    LogInfo("after");
  });
  const size_t first_bar = text.find("1/2"), line = text.find("a line"),
               second_bar = text.find("1/2", line), epoch = text.find("epoch 1: loss 1.0000"),
               after = text.find("after");
  ASSERT_NE(first_bar, std::string::npos) << text;
  ASSERT_NE(line, std::string::npos) << text;
  ASSERT_NE(second_bar, std::string::npos) << text;
  ASSERT_NE(epoch, std::string::npos) << text;
  ASSERT_NE(after, std::string::npos) << text;
  EXPECT_THAT(text.substr(first_bar, line - first_bar), HasSubstr("\r\x1b[K"));
  EXPECT_LT(second_bar, epoch);
  EXPECT_THAT(text.substr(epoch, after - epoch), HasSubstr("\r\x1b[K"));
  EXPECT_EQ(text.find("1/2", after), std::string::npos);
}

}  // namespace
}  // namespace muster
