// Cuts a byte stream into lines, whatever the pieces in which it arrives.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace muster {

class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // without its newline

  // Calls `on_line` for each line that `bytes` completes. Of a line that returns the carriage
  // (a program's own progress bar) the last version counts. A line longer than kLongest is cut.
  void Append(std::string_view bytes, const OnLine& on_line);
  // The stream has ended: what came without a newline is a line too.
  void Finish(const OnLine& on_line);

  static constexpr size_t kLongest = 64 * 1024;

 private:
  std::string partial_;
};

}  // namespace muster
