#include "deploy/launcher/processes/lines.h"

#include <unistd.h>

#include <cerrno>

namespace muster::launcher {
namespace {

std::string_view LastVersion(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t carriage_return = line.rfind('\r');
  return carriage_return == std::string_view::npos ? line : line.substr(carriage_return + 1);
}

}  // namespace

void LineSplitter::Append(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t room = longest_ - partial_.size();
    if (newline == std::string_view::npos && bytes.size() < room) {
      partial_.append(bytes);
      return;
    }
    const bool whole = newline != std::string_view::npos && newline <= room;
    const size_t size = whole ? newline : room;
    partial_.append(bytes.substr(0, size));
    on_line(LastVersion(partial_));
    partial_.clear();
    bytes.remove_prefix(size + (whole ? 1 : 0));
  }
}

void LineSplitter::Finish(const OnLine& on_line) {
  if (!partial_.empty()) on_line(LastVersion(partial_));
  partial_.clear();
}

bool ReadLines(Fd* from, LineSplitter* lines, const LineSplitter::OnLine& on_line) {
  if (!*from) return false;
  char bytes[kMaxPacket];
  const ssize_t size = read(from->get(), bytes, sizeof bytes);
  if (size > 0) {
    lines->Append({bytes, static_cast<size_t>(size)}, on_line);
    return true;
  }
  if (size < 0 && errno == EINTR) return true;
  if (size < 0 && errno == EAGAIN) return false;
  from->Reset();
  return false;
}

}  // namespace muster::launcher
