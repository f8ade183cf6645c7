#include "common/base/peer_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/json/utf8.h"

namespace muster {
namespace {

bool IsPlain(unsigned char c) { return c >= 0x20 && c < 0x7f; }

size_t LengthOf(unsigned char lead) {
  return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// True for C1 controls, and characters that end lines or change the direction of writing.
bool IsControl(std::string_view character) {
  if (character.size() == 2)
    return character[0] == '\xc2' && static_cast<unsigned char>(character[1]) < 0xa0;
  if (character.size() != 3 || character[0] != '\xe2') return false;
  const auto second = static_cast<unsigned char>(character[1]);
  const auto third = static_cast<unsigned char>(character[2]);
  // U+200E, U+200F, U+2028 to U+202E, and U+2066 to U+2069.
  return (second == 0x80 && (third == 0x8e || third == 0x8f || (third >= 0xa8 && third <= 0xae))) ||
         (second == 0x81 && third >= 0xa6 && third <= 0xa9);
}

std::string Escaped(std::string_view character) {
  if (character == "\n") return "\\n";
  if (character == "\t") return " ";
  if (character == "\r") return "\\r";
  std::string text;
  for (const char byte : character)
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

std::string SanitizePeerText(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes && std::all_of(text.begin(), text.end(), [](char c) {
        return IsPlain(static_cast<unsigned char>(c));
      }))
    return std::string(text);
  // The text beyond the limit may be long, so it is not checked.
  const bool cut = text.size() > max_bytes;
  const std::string valid = ValidUtf8(text.substr(0, max_bytes));
  std::string result;
  for (size_t i = 0; i < valid.size();) {
    const auto lead = static_cast<unsigned char>(valid[i]);
    const std::string_view character =
        std::string_view(valid).substr(i, std::min(LengthOf(lead), valid.size() - i));
    i += character.size();
    const bool control = lead < 0x20 || lead == 0x7f || IsControl(character);
    const std::string shown = control ? Escaped(character) : std::string(character);
    if (result.size() + shown.size() > max_bytes) return result + "...";
    result += shown;
  }
  return cut ? result + "..." : result;
}

bool LogRateLimiter::Take(int64_t* suppressed, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  if (!std::exchange(begun_, true)) {
    tokens_ = burst_;
    last_ = now;
  }
  tokens_ = std::min<double>(burst_, tokens_ + Seconds(now - last_) / Seconds(interval_));
  last_ = std::max(last_, now);
  if (tokens_ < 1) {
    ++suppressed_;
    return false;
  }
  tokens_ -= 1;
  *suppressed = std::exchange(suppressed_, 0);
  return true;
}

}  // namespace muster
