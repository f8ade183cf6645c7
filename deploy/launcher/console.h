// The launcher's own output: lines of many processes on stdout and stderr, none of them torn, and
// at the bottom of a terminal one status line that the others scroll above. Never blocks while the
// cluster runs: a reader that has stopped reading must not keep Ctrl-C from working.
#pragma once

#include <string>
#include <string_view>

namespace muster {

class Console {
 public:
  enum class Stream { kOut, kErr };
  struct Options {
    int out = 1, err = 2;  // file descriptors
    bool colour = true;    // false: never; true: on terminals
  };

  explicit Console(const Options& options);

  // Takes a whole line (without its newline). `colour` is the number that tells tasks apart; below
  // 0: none.
  void Line(Stream stream, std::string_view prefix, int colour, std::string_view text);
  // The line at the bottom; empty: none. Does nothing where there is no terminal.
  void SetBar(std::string bar);
  bool has_terminal() const { return terminal_ >= 0; }
  int width() const;  // of the terminal, in columns

  // Writes what can be written without blocking.
  void Flush();
  // What Flush could not write: poll these for POLLOUT. -1: nothing waits.
  int out_waiting() const { return out_.pending.empty() ? -1 : out_.fd; }
  int err_waiting() const { return err_.pending.empty() ? -1 : err_.fd; }
  // So much is waiting that nothing more should be read from the tasks.
  bool congested() const;
  // Whoever read our output is gone (a closed pipe or terminal). What cannot be written, for this
  // or another reason (a full disk), is dropped.
  bool reader_gone() const { return out_.reader_gone || err_.reader_gone; }
  // Removes the bar and writes everything, blocking.
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
  bool same_ = false;  // both go to one file: one queue keeps their order
  bool colour_ = false;
  int terminal_ = -1;  // of the bar: stderr, where that is a terminal
  std::string bar_;
  bool bar_shown_ = false;
};

}  // namespace muster
