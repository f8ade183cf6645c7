// Console is the output of `muster launch`. It writes whole lines of many processes to stdout and
// stderr, and keeps one status line at the bottom of a terminal. Only Close blocks, so Ctrl-C works
// even if the reader of the output has stopped reading.
#pragma once

#include <string>
#include <string_view>

namespace muster::launcher {

class Console {
 public:
  enum class Stream { kOut, kErr };
  struct Options {
    int out = 1, err = 2;  // File descriptors.
    bool colour = true;    // False: no colours. True: colours on terminals.
  };

  explicit Console(const Options& options);

  // Writes a line; `text` has no newline. `colour` is the task's number, by which Console picks a
  // colour. Below 0: none.
  void Line(Stream stream, std::string_view prefix, int colour, std::string_view text);
  // Sets the status line at the bottom. Empty: none. Has no effect without a terminal.
  void SetBar(std::string bar);
  bool has_terminal() const { return terminal_ >= 0; }
  int width() const;  // The width of the terminal in columns.

  // Writes as much as possible without blocking.
  void Flush();
  // out_waiting and err_waiting return the descriptor to poll for POLLOUT if Flush could not write
  // everything. -1: nothing is pending.
  int out_waiting() const { return out_.pending.empty() ? -1 : out_.fd; }
  int err_waiting() const { return err_.pending.empty() ? -1 : err_.fd; }
  // Returns true if so much output is pending that the caller should not read more from the tasks.
  bool congested() const;
  // Returns true if the pipe or terminal was closed. Console drops output that it cannot write, for
  // this or another reason such as a full disk.
  bool reader_gone() const { return out_.reader_gone || err_.reader_gone; }
  // Removes the status line and writes everything. Blocks.
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
  bool same_ = false;  // stdout and stderr are one file. A single queue keeps the order of lines.
  bool colour_ = false;
  // The descriptor of the status line: stderr if that is a terminal, else -1.
  int terminal_ = -1;
  std::string bar_;
  bool bar_shown_ = false;
};

}  // namespace muster::launcher
