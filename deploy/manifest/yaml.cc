#include "deploy/manifest/yaml.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "common/base/json/utf8.h"

namespace muster {
namespace {

// Returns true if `text` needs no quotes. Excludes text that YAML 1.1 or 1.2 reads as a number,
// boolean, date or null.
bool IsPlain(std::string_view text) {
  if (text.empty() || !(absl::ascii_isalnum(text[0]) || text[0] == '/') ||
      absl::ascii_isdigit(text[0]))
    return false;
  std::string lower(text);
  absl::AsciiStrToLower(&lower);
  for (const char* word : {"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
    if (lower == word) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || std::string_view("-_./").find(c) != std::string_view::npos;
  });
}

// Returns true for characters that JSON leaves unescaped and YAML must escape: YAML parsers read
// them as line breaks or as a byte order mark, or reject them. All are below U+10000.
bool IsSpecial(char32_t c) {
  return (c >= 0x7f && c <= 0x9f) || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe ||
         c == 0xffff;
}

// Returns the special character that begins at `at`, and its length in bytes. `text` is valid
// UTF-8.
std::pair<char32_t, size_t> SpecialAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  char32_t c = byte(0);
  size_t length = 1;
  if (c >> 5 == 0x6) {
    c = (c & 0x1f) << 6 | (byte(1) & 0x3f);
    length = 2;
  } else if (c >> 4 == 0xe) {
    c = (c & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    length = 3;
  } else if (c > 0x7f) {
    return {0, 1};
  }
  return IsSpecial(c) ? std::pair(c, length) : std::pair(char32_t{0}, size_t{1});
}

// Returns the string in double quotes. YAML supports the escapes of JSON.
std::string Quoted(const OrderedJson& json) {
  const std::string text = Dump(json);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [c, length] = SpecialAt(text, at);
    if (c == 0) {
      out += text[at];
    } else {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    }
    at += length;
  }
  return out;
}

// Returns true if `text` has several lines and a literal block preserves it.
bool IsBlock(std::string_view text) {
  if (text.find('\n') == std::string_view::npos || text[0] == ' ' || text[0] == '\n') return false;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if ((c < 0x20 && c != '\n') || SpecialAt(text, at).first != 0) return false;
  }
  return true;
}

std::string Block(std::string_view text, int indent) {
  std::string out = "|";
  if (text.back() != '\n') {
    out += '-';
  } else if (text.ends_with("\n\n")) {
    out += '+';
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += '\n';
    if (end > begin) out += fmt::format("{:{}}{}", "", indent, text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string Scalar(const OrderedJson& json, int indent) {
  if (!json.is_string()) return Dump(json);  // Includes {} and [].
  const std::string text = ValidUtf8(json.get_ref<const std::string&>());
  if (IsPlain(text)) return text;
  return IsBlock(text) ? Block(text, indent) : Quoted(json);
}

void Append(const OrderedJson& json, int indent, std::string* out);

// Appends the value after "key:" or "-", on the same line or below.
void AppendValue(const OrderedJson& value, int indent, std::string* out) {
  if (value.is_structured() && !value.empty()) {
    *out += '\n';
    Append(value, value.is_array() ? indent : indent + 2, out);
  } else {
    *out += fmt::format(" {}\n", Scalar(value, indent + 2));
  }
}

void AppendItem(const OrderedJson& item, int indent, std::string* out) {
  if (!item.is_structured() || item.empty()) {
    *out += fmt::format("{:{}}- {}\n", "", indent, Scalar(item, indent + 2));
    return;
  }
  const size_t begin = out->size();
  Append(item, indent + 2, out);
  (*out)[begin + indent] = '-';  // Replaces a space of the first line's indent.
}

void Append(const OrderedJson& json, int indent, std::string* out) {
  if (json.is_array()) {
    for (const OrderedJson& item : json) AppendItem(item, indent, out);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    *out += fmt::format("{:{}}{}:", "", indent, IsPlain(key) ? key : Quoted(OrderedJson(key)));
    AppendValue(value, indent, out);
  }
}

}  // namespace

std::string ToYaml(const OrderedJson& json) {
  if (!json.is_structured() || json.empty()) return Scalar(json, 2) + "\n";
  std::string out;
  Append(json, 0, &out);
  return out;
}

}  // namespace muster
