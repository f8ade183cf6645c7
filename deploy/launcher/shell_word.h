// Quotes text for a POSIX shell.
#pragma once

#include <string>

namespace muster::launcher {

// Returns `word`, in quotes if the shell would not read it as one word without them.
std::string ShellWord(const std::string& word);

}  // namespace muster::launcher
