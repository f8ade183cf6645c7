// Console is the output of `muster launch`. Console writes whole lines of many processes to stdout
// and stderr, and keeps one status line at the bottom of a terminal. All functions except Close are
// non-blocking, so Ctrl-C works even if the reader of the output has stopped reading. Not
// thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace muster::launcher {

class Console {
 public:
  enum class Stream { kOut, kErr };
  struct Options {
    int out = 1, err = 2;  // File descriptors.
    bool colour = true;    // If true, Console writes colours to terminals.
  };

  explicit Console(const Options& options);

  // Adds a line of `prefix` and `text` to the pending output. `text` has no newline. The prefix has
  // a colour that depends on `colour`, the number of the task. If `colour` is below 0, the prefix
  // has no colour.
  void Line(Stream stream, std::string_view prefix, int colour, std::string_view text);
  // Sets the status line at the bottom. An empty `bar` removes the line. Has no effect without a
  // terminal.
  void SetBar(std::string bar);
  bool has_terminal() const { return terminal_ >= 0; }
  int width() const;  // The width of the terminal in columns.

  // Writes as much of the pending output as possible without blocking.
  void Flush();
  // out_waiting and err_waiting return the descriptor to poll for POLLOUT if Flush could not write
  // everything. They return -1 if nothing is pending.
  int out_waiting() const { return out_.pending.empty() ? -1 : out_.fd; }
  int err_waiting() const { return err_.pending.empty() ? -1 : err_.fd; }
  // Returns true if so much output is pending that the caller should stop reading from the tasks.
  bool congested() const;
  // Returns true if the reader of stdout or stderr has closed the pipe or terminal. After a failed
  // write to a stream, for example on a full disk, Console drops all further output to that stream.
  bool reader_gone() const { return out_.reader_gone || err_.reader_gone; }
  // Removes the status line and writes all pending output. Blocks.
  void Close();

 private:
  struct Output {
    int fd = -1;
    bool terminal = false;
    bool gone = false, reader_gone = false;
    std::string pending;
  };
  Output& For(Stream stream) { return stream == Stream::kOut && !same_ ? out_ : err_; }
  void EraseBar();
  static void Write(Output* output, bool block);

  Output out_, err_;
  // True if stdout and stderr are the same file. out_ then holds the lines of both streams, in
  // order.
  bool same_ = false;
  bool colour_ = false;
  // The descriptor of the status line: stderr if that is a terminal, else -1.
  int terminal_ = -1;
  std::string bar_;
  bool bar_shown_ = false;
};

}  // namespace muster::launcher
