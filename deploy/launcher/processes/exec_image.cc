#include "deploy/launcher/processes/exec_image.h"

#include <unistd.h>

#include <utility>

namespace muster::launcher {
namespace {

std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ExecImage::ExecImage(std::vector<std::string> arguments,
                     const std::map<std::string, std::string>& variables)
    : arguments_(std::move(arguments)),
      environment_(EnvironmentWith(variables)),
      argv_(Pointers(arguments_)),
      envp_(Pointers(environment_)) {}

}  // namespace muster::launcher
