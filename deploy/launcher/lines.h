// Splits a byte stream into lines, whatever the sizes of its pieces.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace muster {

class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // Without its newline.

  // Calls `on_line` for each line that `bytes` completes. If a line contains carriage returns (a
  // program's progress bar), only its last version is passed. A line longer than kLongest is split.
  void Append(std::string_view bytes, const OnLine& on_line);
  // Ends the stream. Passes a last line without a newline.
  void Finish(const OnLine& on_line);

  static constexpr size_t kLongest = 64 * 1024;

 private:
  std::string partial_;
};

}  // namespace muster
