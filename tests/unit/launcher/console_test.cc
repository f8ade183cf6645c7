#include "deploy/launcher/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>

#include "deploy/launcher/processes/child.h"

namespace muster::launcher {
namespace {

using testing::HasSubstr;
using Stream = Console::Stream;

// Returns the bytes that can be read now.
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

struct PipePair {
  PipePair() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  Fd read, write;
};

struct Terminal {
  explicit Terminal(unsigned short columns) {
    winsize size = {24, columns, 0, 0};
    int a = -1, b = -1;
    if (openpty(&a, &b, nullptr, nullptr, &size) != 0) std::abort();
    screen = Fd(a);
    tty = Fd(b);
  }
  Fd screen, tty;
};

TEST(Console, KeepsStreamsApartAndUncolouredInPipes) {
  PipePair out, err;
  Console console({out.write.get(), err.write.get()});
  EXPECT_FALSE(console.has_terminal());
  console.Line(Stream::kOut, "[worker 0] ", 1, "one");
  console.Line(Stream::kErr, "[worker 1] ", 2, "two");
  console.SetBar("a bar");
  console.Flush();
  EXPECT_EQ(ReadAll(out.read.get()), "[worker 0] one\n");
  EXPECT_EQ(ReadAll(err.read.get()), "[worker 1] two\n");
  EXPECT_EQ(console.out_waiting(), -1);
}

TEST(Console, ScrollsLinesAboveTheBar) {
  Terminal terminal(60);
  Console console({terminal.tty.get(), terminal.tty.get()});
  ASSERT_TRUE(console.has_terminal());
  EXPECT_EQ(console.width(), 60);
  console.SetBar("50 %");
  console.Flush();
  EXPECT_EQ(ReadAll(terminal.screen.get()), "50 %");
  console.Line(Stream::kOut, "[chief 0] ", 0, "one");
  console.Line(Stream::kErr, "[chief 0] ", 0, "two");
  console.Flush();
  EXPECT_EQ(ReadAll(terminal.screen.get()),
            "\r\x1b[K\x1b[36m[chief 0] \x1b[0mone\r\n\x1b[36m[chief 0] \x1b[0mtwo\r\n50 %");
  console.SetBar("50 %");  // nothing new: nothing is written
  console.Flush();
  EXPECT_EQ(ReadAll(terminal.screen.get()), "");
  console.SetBar("60 %");
  console.Flush();
  EXPECT_EQ(ReadAll(terminal.screen.get()), "\r\x1b[K60 %");
  console.Close();
  EXPECT_EQ(ReadAll(terminal.screen.get()), "\r\x1b[K");
}

TEST(Console, LeavesColoursOutOnRequest) {
  Terminal terminal(60);
  Console console({terminal.tty.get(), terminal.tty.get(), /*colour=*/false});
  console.Line(Stream::kOut, "[chief 0] ", 0, "one");
  console.Flush();
  EXPECT_EQ(ReadAll(terminal.screen.get()), "[chief 0] one\r\n");
}

TEST(Console, NeverBlocksOnAReaderThatStopped) {
  PipePair out, err;
  fcntl(out.write.get(), F_SETPIPE_SZ, 8192);
  Console console({out.write.get(), err.write.get()});
  const std::string line(1000, 'x');
  size_t expected = 0;
  while (!console.congested()) {
    console.Line(Stream::kOut, "", -1, line);
    console.Flush();
    expected += line.size() + 1;
  }
  EXPECT_EQ(console.out_waiting(), out.write.get());
  size_t received = 0;
  while (received < expected) {
    const std::string text = ReadAll(out.read.get());
    ASSERT_FALSE(text.empty());
    received += text.size();
    console.Flush();
  }
  EXPECT_EQ(received, expected);
  EXPECT_EQ(console.out_waiting(), -1);
}

TEST(Console, NoticesThatItsReaderIsGone) {
  std::signal(SIGPIPE, SIG_IGN);
  PipePair out, err;
  out.read.Reset();
  Console console({out.write.get(), err.write.get()});
  console.Line(Stream::kOut, "", -1, "anybody?");
  console.Flush();
  EXPECT_TRUE(console.reader_gone());
  console.Line(Stream::kErr, "", -1, "still here");
  console.Close();
  EXPECT_EQ(ReadAll(err.read.get()), "still here\n");
}

TEST(Console, DropsWhatAFullDiskDoesNotTake) {
  Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  PipePair err;
  Console console({full.get(), err.write.get()});
  console.Line(Stream::kOut, "", -1, "no room");
  console.Flush();
  EXPECT_FALSE(console.reader_gone());
  EXPECT_EQ(console.out_waiting(), -1);
}

}  // namespace
}  // namespace muster::launcher
