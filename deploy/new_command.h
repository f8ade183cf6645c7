// `muster new`: a small project with a program of one's own, which builds and trains as it is.
#pragma once

#include <memory>
#include <string>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeNewCommand();

// Writes the project to `directory`, which is made where it is missing and must be empty. `name`:
// of the program, letters, digits and '_'. `root`: Muster's prefix or build folder.
absl::Status WriteProject(const std::string& directory, const std::string& name,
                          const std::string& root);
// "two_spirals" is TwoSpirals.
std::string ClassName(const std::string& name);

}  // namespace muster
