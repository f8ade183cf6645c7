// The arguments and the environment of a program to execute.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace muster::launcher {

// Construct it before a fork, because the child must not allocate. Not copyable, because it points
// into itself.
class ExecImage {
 public:
  // `arguments`: the first one is the program's path. `variables` are added to this process's
  // environment or replace its values.
  ExecImage(std::vector<std::string> arguments,
            const std::map<std::string, std::string>& variables);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  // The arguments of execve. Valid as long as this object.
  char* const* argv() const { return argv_.data(); }
  char* const* envp() const { return envp_.data(); }

 private:
  std::vector<std::string> arguments_, environment_;
  std::vector<char*> argv_, envp_;
};

}  // namespace muster::launcher
