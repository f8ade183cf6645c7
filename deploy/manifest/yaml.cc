#include "deploy/manifest/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace muster {
namespace {

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Words, paths and names: nothing that YAML 1.1 or 1.2 reads as a number, boolean, date or null.
bool IsPlain(std::string_view text) {
  if (text.empty() || !(IsAlnum(text[0]) || text[0] == '/') || (text[0] >= '0' && text[0] <= '9'))
    return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const char* word : {"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
    if (lower == word) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return IsAlnum(c) || std::string_view("-_./").find(c) != std::string_view::npos;
  });
}

// Several lines, nothing that a literal block could not carry unchanged.
bool IsBlock(std::string_view text) {
  const bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
  });
  return !control && text.find('\n') != std::string_view::npos && text[0] != ' ' && text[0] != '\n';
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
  if (!json.is_string()) return Dump(json);  // Also {} and [].
  const auto& text = json.get_ref<const std::string&>();
  if (IsPlain(text)) return text;
  return IsBlock(text) ? Block(text, indent) : Dump(json);
}

void Append(const OrderedJson& json, int indent, std::string* out);

// What follows "key:" or "-": on the same line, or below.
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
  (*out)[begin + indent] = '-';  // In the place of the first line's last two spaces.
}

void Append(const OrderedJson& json, int indent, std::string* out) {
  if (json.is_array()) {
    for (const OrderedJson& item : json) AppendItem(item, indent, out);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    *out += fmt::format("{:{}}{}:", "", indent, IsPlain(key) ? key : Dump(OrderedJson(key)));
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
