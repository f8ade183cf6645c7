#include "deploy/report/html.h"

#include "common/base/json/utf8.h"
#include "common/web/page_policy.h"

namespace muster::report {

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : ValidUtf8(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
          escaped += "\xEF\xBF\xBD";
        else
          escaped += c;
    }
  }
  return escaped;
}

std::string EscapedJson(std::string json) {
  constexpr std::string_view kEscape = "\\u003c";
  for (size_t at = json.find('<'); at != std::string::npos;
       at = json.find('<', at + kEscape.size()))
    json.replace(at, 1, kEscape);
  return json;
}

std::string PolicyFor(std::string_view script) {
  return "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src " +
         web::SourceOfText(script);
}

std::string Filled(std::string_view page, const std::map<std::string, std::string>& values) {
  std::string filled;
  for (;;) {
    const size_t begin = page.find("{{"), end = page.find("}}", begin);
    if (begin == std::string_view::npos || end == std::string_view::npos)
      return filled.append(page);
    filled.append(page.substr(0, begin));
    filled += values.at(std::string(page.substr(begin + 2, end - begin - 2)));
    page.remove_prefix(end + 2);
  }
}

}  // namespace muster::report
