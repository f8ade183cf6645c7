// How the programs of this folder talk to their tests: a question a line, an answer a line.
#pragma once

#include <functional>
#include <iostream>
#include <string>

#include "muster/status.h"

namespace muster::testing {

// `answer` gets each line of stdin. Returns the exit code: of the first error, whose sentence goes
// to stderr.
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
