#include "deploy/launcher/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace muster::launcher {
namespace {

// A write of at most this many bytes to a pipe that polls as writable does not block.
constexpr size_t kSafeWrite = 4096;
constexpr size_t kCongested = 1 << 20;

bool SameFile(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

constexpr std::string_view kColours[] = {"36", "32", "33", "35", "34",
                                         "96", "92", "93", "95", "94"};

}  // namespace

Console::Console(const Options& options) {
  out_.fd = options.out;
  err_.fd = options.err;
  out_.terminal = isatty(out_.fd) != 0;
  err_.terminal = isatty(err_.fd) != 0;
  same_ = SameFile(out_.fd, err_.fd);
  colour_ = options.colour;
  if (err_.terminal) terminal_ = err_.fd;
}

void Console::Line(Stream stream, std::string_view prefix, int colour, std::string_view text) {
  Output& output = For(stream);
  if (output.gone) return;
  if (output.terminal) EraseBar();
  const bool coloured = colour_ && output.terminal && colour >= 0;
  if (coloured) {
    output.pending += "\x1b[";
    output.pending += kColours[static_cast<size_t>(colour) % std::size(kColours)];
    output.pending += 'm';
  }
  output.pending += prefix;
  if (coloured) output.pending += "\x1b[0m";
  output.pending += text;
  output.pending += '\n';
}

void Console::EraseBar() {
  if (!bar_shown_) return;
  err_.pending += "\r\x1b[K";
  // Erases the bar first, because the next line may go through the other queue.
  if (!same_) Write(&err_, false);
  bar_shown_ = false;
}

void Console::SetBar(std::string bar) {
  if (terminal_ < 0 || (bar == bar_ && bar_shown_)) return;
  EraseBar();
  bar_ = std::move(bar);
}

int Console::width() const {
  winsize size = {};
  if (terminal_ >= 0 && ioctl(terminal_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

void Console::Flush() {
  if (!out_.pending.empty()) Write(&out_, false);
  if (!bar_shown_ && !bar_.empty() && !err_.gone && err_.pending.size() < kSafeWrite) {
    err_.pending += bar_;
    bar_shown_ = true;
  }
  if (!err_.pending.empty()) Write(&err_, false);
}

bool Console::congested() const {
  return out_.pending.size() > kCongested || err_.pending.size() > kCongested;
}

void Console::Close() {
  EraseBar();
  bar_.clear();
  Write(&out_, true);
  Write(&err_, true);
}

void Console::Write(Output* output, bool block) {
  size_t done = 0;
  while (done < output->pending.size()) {
    if (!block) {
      pollfd ready = {output->fd, POLLOUT, 0};
      if (poll(&ready, 1, 0) != 1) break;
    }
    const size_t size = std::min(output->pending.size() - done, kSafeWrite);
    const ssize_t written = write(output->fd, output->pending.data() + done, size);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN && !block) {
      break;
    } else if (errno == EAGAIN) {
      pollfd ready = {output->fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      output->gone = true;
      output->reader_gone = errno == EPIPE || errno == EIO;
      output->pending.clear();
      return;
    }
  }
  output->pending.erase(0, done);
}

}  // namespace muster::launcher
