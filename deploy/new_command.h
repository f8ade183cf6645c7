// `muster new`. Creates a small project with a program, ready to build and train.
#pragma once

#include <memory>
#include <string>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeNewCommand();

// Writes the project to `directory`. Creates the directory if it is missing; an existing one must
// be empty. `name` is the program's name: letters, digits and '_'. `root` is Muster's install
// prefix or build folder.
absl::Status WriteProject(const std::string& directory, const std::string& name,
                          const std::string& root);
// Returns "TwoSpirals" for "two_spirals".
std::string ClassName(const std::string& name);

}  // namespace muster
