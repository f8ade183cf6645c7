// The launcher's own output. It writes whole lines of many processes to stdout and stderr, and
// keeps one status line at the bottom of a terminal. Never blocks while the cluster runs, so that
// Ctrl-C works even if the reader has stopped reading.
#pragma once

#include <string>
#include <string_view>

namespace muster {

class Console {
 public:
  enum class Stream { kOut, kErr };
  struct Options {
    int out = 1, err = 2;  // File descriptors.
    bool colour = true;    // False: never. True: on terminals.
  };

  explicit Console(const Options& options);

  // Writes a whole line, given without its newline. `colour` is a number that distinguishes tasks.
  // Below 0: none.
  void Line(Stream stream, std::string_view prefix, int colour, std::string_view text);
  // Sets the status line at the bottom. Empty: none. No-op without a terminal.
  void SetBar(std::string bar);
  bool has_terminal() const { return terminal_ >= 0; }
  int width() const;  // The width of the terminal in columns.

  // Writes as much as possible without blocking.
  void Flush();
  // The descriptors to poll for POLLOUT, if Flush could not write everything. -1: nothing is
  // pending.
  int out_waiting() const { return out_.pending.empty() ? -1 : out_.fd; }
  int err_waiting() const { return err_.pending.empty() ? -1 : err_.fd; }
  // True if so much output is pending that no more should be read from the tasks.
  bool congested() const;
  // True if the reader of the output is gone (a closed pipe or terminal). Output that cannot be
  // written, for this or another reason such as a full disk, is dropped.
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
  bool same_ = false;  // Both go to one file. A single queue keeps their order.
  bool colour_ = false;
  int terminal_ = -1;  // The descriptor of the status line: stderr if it is a terminal.
  std::string bar_;
  bool bar_shown_ = false;
};

}  // namespace muster
