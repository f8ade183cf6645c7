// The arguments and the environment of a program to execute.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace muster::launcher {

// Construct an ExecImage before fork(), because the child must not allocate memory. Not copyable,
// because argv_ and envp_ point into the object.
class ExecImage {
 public:
  // `arguments` are the program's path and its arguments. The environment is that of this process,
  // with `variables` added or replaced.
  ExecImage(std::vector<std::string> arguments,
            const std::map<std::string, std::string>& variables);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  // Return the second and third argument of execve(). Valid as long as this object exists.
  char* const* argv() const { return argv_.data(); }
  char* const* envp() const { return envp_.data(); }

 private:
  std::vector<std::string> arguments_, environment_;
  std::vector<char*> argv_, envp_;
};

}  // namespace muster::launcher
