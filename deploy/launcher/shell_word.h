// Text for a POSIX shell.
#pragma once

#include <string>

namespace muster::launcher {

// Quotes a word where it needs quotes.
std::string ShellWord(const std::string& word);

}  // namespace muster::launcher
