// The main function of a test binary that acts as a role. The binary is muster-chief if its name
// ends so, else muster-worker. It runs the test's own program instead of the one that the job
// names.
#pragma once

#include <memory>
#include <string_view>

#include "chief/chief.h"
#include "worker/task.h"

namespace muster::testing {

template <typename OwnProgram>
int RunRole(int argc, char** argv) {
  const bool chief = std::string_view(argv[0]).ends_with("muster-chief");
  return worker::RunTask(
      argc, argv,
      {chief ? TaskType::kChief : TaskType::kWorker, chief::StartChief, [](const Json&) {
         return absl::StatusOr<ProgramFactory>([] { return std::make_unique<OwnProgram>(); });
       }});
}

}  // namespace muster::testing
