#include "deploy/commands/inspection/trace_command.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/cluster/task.h"
#include "common/cluster/verdict.h"
#include "common/job/job.h"
#include "deploy/commands/inspection/trace_source.h"
#include "deploy/status/status_client.h"

namespace muster {
namespace {

constexpr Duration kConnect = std::chrono::seconds(10);

class TraceCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app =
        muster.add_subcommand("trace",
                              "Write the spans of each thread of each task of a running job during "
                              "a few steps, for Perfetto (exit code 2: nothing to trace, 138: no "
                              "task answered)");
    app->add_option("TARGET", target_, "The job's model_dir, or the chief's address HOST:PORT")
        ->required();
    app->add_option("--steps", wanted_.steps, "Steps to record")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    app->add_option("-o,--output", output_, "The file to write")
        ->capture_default_str()
        ->type_name("FILE");
    app->add_option("--timeout", timeout_, "Seconds after which tasks stop recording")
        ->capture_default_str()
        ->check(CLI::Range(0.1, 600.0));
    app->add_option("--job", job_file_, "The job file, for its security and tls keys")
        ->type_name("FILE");
    AddSet(app, &overrides_);
    app->add_option("--key-file", key_file_, "The run key of the job")->type_name("FILE");
    return app;
  }

  int Run() override {
    wanted_.limit = FromSeconds(timeout_);
    const absl::StatusOr<GivenTrace> given = Get();
    if (!given.ok()) return ReportStatus("trace", given.status());
    for (const std::string& missing : given->missing)
      fmt::print(stderr, "muster trace: left out: {}\n", missing);
    if (given->tasks.empty())
      return ReportStatus(
          "trace", StatusFor(ExitCode::kRetryable,
                             fmt::format("no task delivered spans within {:g} s", timeout_)));
    if (const absl::Status written = WriteOutputFile(output_, given->text); !written.ok())
      return ReportStatus("trace", written);
    Print(*given);
    return 0;
  }

 private:
  absl::StatusOr<GivenTrace> Get() {
    std::error_code error;
    if (std::filesystem::is_directory(target_, error)) return TraceFromModelDir(target_, wanted_);
    if (!ParseAddress(target_).ok())
      return ConfigurationError(
          fmt::format("'{}' is neither a folder nor an address HOST:PORT", target_));
    status::ChiefChannelOptions link;
    link.address = target_;
    link.key_file = key_file_;
    if (!job_file_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(link.job, LoadJob(job_file_, overrides_));
    }
    MUSTER_ASSIGN_OR_RETURN(const rpc::ChannelOptions channel,
                            status::ChannelToChief(link, kConnect));
    return TraceFromChief(target_, channel, wanted_);
  }

  void Print(const GivenTrace& given) const {
    std::vector<std::string> tasks;
    for (const std::string& task : given.tasks) tasks.push_back(TaskText(task));
    if (!given.note.empty()) fmt::print("{}.\n", given.note);
    fmt::print("{}: steps {} to {} of {}. Open it in Perfetto (ui.perfetto.dev).\n", output_,
               given.first_step, given.last_step, fmt::join(tasks, ", "));
  }

  std::string target_, output_ = "trace.json", job_file_, key_file_;
  std::vector<std::string> overrides_;
  WantedTrace wanted_;
  double timeout_ = 60;
};

}  // namespace

std::unique_ptr<Command> MakeTraceCommand() { return std::make_unique<TraceCommand>(); }

}  // namespace muster
