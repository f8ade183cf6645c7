#include "deploy/launcher/shell_word.h"

#include <absl/strings/str_replace.h>
#include <fmt/format.h>

namespace muster::launcher {

std::string ShellWord(const std::string& word) {
  constexpr char kPlain[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,:@%+-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  return fmt::format("'{}'", absl::StrReplaceAll(word, {{"'", "'\\''"}}));
}

}  // namespace muster::launcher
