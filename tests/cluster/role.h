// The main function of a test's role: muster-chief where it is called so, else muster-worker, with
// the test's own program whatever the job names.
#pragma once

#include <memory>
#include <string_view>

#include "chief/chief.h"
#include "worker/task.h"

namespace muster::testing {

template <typename OwnProgram>
int RunRole(int argc, char** argv) {
  const bool chief = std::string_view(argv[0]).ends_with("muster-chief");
  return RunTask(
      argc, argv,
      {chief ? TaskType::kChief : TaskType::kWorker, StartChief, [](const Json&) {
         return absl::StatusOr<ProgramFactory>([] { return std::make_unique<OwnProgram>(); });
       }});
}

}  // namespace muster::testing
