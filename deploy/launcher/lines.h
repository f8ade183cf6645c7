// LineSplitter splits a byte stream, which arrives in pieces of any size, into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace muster::launcher {

class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // `line` has no newline.

  static constexpr size_t kLongest = 64 * 1024;

  LineSplitter() = default;
  // `longest` is the limit of a line in bytes.
  explicit LineSplitter(size_t longest) : longest_(longest) {}

  // Calls `on_line` for each line that `bytes` completes. If a line contains carriage returns (a
  // progress bar), passes only the text after the last one. Splits a line that is longer than the
  // limit.
  void Append(std::string_view bytes, const OnLine& on_line);
  // Called at the end of the stream. Passes a last line without a newline.
  void Finish(const OnLine& on_line);

 private:
  size_t longest_ = kLongest;
  std::string partial_;
};

}  // namespace muster::launcher
