// Quotes text for a POSIX shell.
#pragma once

#include <string>

namespace muster::launcher {

// Returns text that a POSIX shell reads as the single word `word`. Adds quotes only if they are
// necessary.
std::string ShellWord(const std::string& word);

}  // namespace muster::launcher
