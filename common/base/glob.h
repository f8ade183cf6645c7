// Patterns for names: '*' matches any text, '?' matches any one character, and any other character
// matches itself.
#pragma once

#include <string_view>

namespace muster {

// Returns whether `pattern` matches the whole of `text`.
inline bool MatchesGlob(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  // The position of the last '*', and the end of the text that this '*' matches.
  size_t star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace muster
