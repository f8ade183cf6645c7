// `muster new`. Creates a folder with a small C++ project: a training program, its job file and its
// CMakeLists.txt.
#pragma once

#include <memory>
#include <string>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeNewCommand();

// Writes the project to `directory`. Creates the directory if it is missing. An existing directory
// must be empty. `name` is the program's name: letters, digits and '_'. `root` is Muster's install
// prefix or build folder.
absl::Status WriteProject(const std::string& directory, const std::string& name,
                          const std::string& root);
// Returns "TwoSpirals" for "two_spirals".
std::string ClassName(const std::string& name);

}  // namespace muster
