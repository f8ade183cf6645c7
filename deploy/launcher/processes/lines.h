// LineSplitter splits a byte stream, which arrives in pieces of any size, into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/files/fd.h"

namespace muster::launcher {

class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // `line` has no newline.

  static constexpr size_t kLongest = 64 * 1024;

  LineSplitter() = default;
  // `longest` is the limit of a line in bytes, instead of kLongest.
  explicit LineSplitter(size_t longest) : longest_(longest) {}

  // Calls `on_line` for each line that `bytes` completes. If a line contains carriage returns (a
  // progress bar), passes only the text after the last carriage return. Splits a line that is
  // longer than `longest` into pieces of this length.
  void Append(std::string_view bytes, const OnLine& on_line);
  // Call Finish at the end of the stream. If the last line has no newline, calls `on_line` for this
  // line.
  void Finish(const OnLine& on_line);

 private:
  size_t longest_ = kLongest;
  std::string partial_;
};

// The limit of a progress packet in bytes.
inline constexpr size_t kMaxPacket = 128 * 1024;

// Reads once from `from`, which must not block, and appends the bytes to `lines`. Returns false if
// nothing more can be read now. Closes `from` at the end of the stream and after an error, and
// leaves lines->Finish to the caller.
bool ReadLines(Fd* from, LineSplitter* lines, const LineSplitter::OnLine& on_line);

}  // namespace muster::launcher
