#include "common/process/task_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/base/files/created_files.h"
#include "common/base/files/descriptors.h"
#include "common/base/log_writer.h"
#include "common/base/logging.h"
#include "common/base/process/locks.h"
#include "common/base/process/service_manager.h"
#include "common/base/process/termination_message.h"
#include "common/job/job_checks.h"
#include "common/process/command_line.h"
#include "muster/version.h"

namespace muster {
namespace {

// Returns nullopt if the process must exit with *code.
std::optional<TaskArguments> ParseTaskArguments(int argc, char** argv, const std::string& about,
                                                int* code) {
  TaskArguments arguments;
  CLI::App app(about);
  app.add_option("--job", arguments.job, "Job file (JSON, comments allowed)")->required();
  app.add_option("--set", arguments.overrides,
                 "Override a key of the job: dotted.key=value, repeatable")
      ->allow_extra_args(false);
  std::vector<std::string> faults;
  app.add_option("--fault", faults,
                 "Inject a fault, for example kill@worker:1:step=30, repeatable: docs/faults.md")
      ->allow_extra_args(false);
  app.set_version_flag("--version", MUSTER_VERSION);
  if (const std::optional<int> exit_code = ParseCommandLine(app, argc, argv)) {
    *code = *exit_code;
    return std::nullopt;
  }
  absl::StatusOr<std::vector<Fault>> parsed = ParseFaults(faults);
  if (!parsed.ok()) {
    std::fprintf(stderr, "%s\n", std::string(Message(parsed.status())).c_str());
    *code = static_cast<int>(ExitCode::kConfiguration);
    return std::nullopt;
  }
  arguments.faults = *std::move(parsed);
  return arguments;
}

}  // namespace

int RunTaskMain(int argc, char** argv, const TaskMain& main,
                const std::function<absl::Status(const TaskArguments&, StopSignals*)>& body) {
  EndLockCycleSearch();
  InitLogging("");
  RaiseDescriptorLimit();
  int code = 0;
  const std::optional<TaskArguments> arguments = ParseTaskArguments(argc, argv, main.about, &code);
  if (!arguments) return code;
  StopSignals signals(main.on_signal, main.on_unhandled);
  const absl::Status result = body(*arguments, &signals);
  if (result.ok()) TellReady();  // A finished run is not a failed start.
  ReportResult(result, main.termination_log);
  LeaveProcess(ExitCodeOf(result));
}

void UseFileMode(const Job& job) {
  if (const auto mode = ParseFileMode(job.security.file_mode); mode.ok()) SetFileMode(*mode);
}

void ReportResult(const absl::Status& result, const std::string& termination_log) {
  if (absl::IsCancelled(result)) {
    LogInfo("{}", Message(result));
  } else if (!result.ok()) {
    LogError("{}", Message(result));
  }
  if (!result.ok()) WriteTerminationMessage(termination_log, Message(result));
  FlushLog();
}

absl::Status CheckSupported(const Job& job) {
  if (job.strategy == StrategyKind::kParameterServer)
    MUSTER_RETURN_IF_ERROR(CheckMaxStaleness(job));
  return CheckDeterministic(job);
}

void EndNow(const std::string& line, const std::string& termination_log, ExitCode code) {
  LogError("{}", line);
  WriteTerminationMessage(termination_log, line);
  FlushLog();
  _exit(static_cast<int>(code));  // Cannot block on locks of other threads.
}

void LeaveProcess(ExitCode code) {
  // If the log cannot be flushed, flushing the program's output might hang too.
  if (FlushLog()) std::fflush(nullptr);
  _exit(static_cast<int>(code));
}

}  // namespace muster
