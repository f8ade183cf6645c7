// The protocol between the programs of this folder and their tests. Each line of stdin is a
// question, and the program prints one line as its answer.
#pragma once

#include <functional>
#include <iostream>
#include <string>

#include "muster/status.h"

namespace muster::testing {

// Calls `answer` for each line of stdin, until the end or an error. Prints the error to stderr.
// Returns the process's exit code.
inline int AnswerLines(const std::function<absl::Status(const std::string&)>& answer) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::Status answered = answer(line);
    if (answered.ok()) continue;
    std::cerr << Message(answered) << "\n";
    return static_cast<int>(ExitCodeOf(answered));
  }
  return 0;
}

}  // namespace muster::testing
