#include "deploy/commands/launch/launch_command.h"

#include <errno.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "common/base/faults/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/cluster/protocol.h"
#include "common/cluster/task.h"
#include "common/job/job.h"
#include "common/job/job_checks.h"
#include "common/process/task_process.h"
#include "common/rpc/channel.h"
#include "common/rpc/host.h"
#include "deploy/commands/launch/launch_hosts.h"
#include "deploy/commands/launch/launch_key.h"
#include "deploy/launcher/gpus.h"
#include "deploy/launcher/launcher.h"
#include "deploy/own_folder.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster {
namespace {

// Returns the tasks with placeholder ports.
std::vector<launcher::PlannedTask> PlanOf(const launcher::ClusterSize& size) {
  std::vector<int> ports(size.processes());
  std::iota(ports.begin(), ports.end(), 1);
  return launcher::PlanCluster(size, ports);
}

// Returns the strategy of the job on this cluster. Reports an error once here, before every task
// reports it.
absl::StatusOr<StrategyKind> StrategyOn(const Job& job, const launcher::ClusterSize& size) {
  const std::vector<launcher::PlannedTask> plan = PlanOf(size);
  MUSTER_ASSIGN_OR_RETURN(const ClusterConfig config,
                          ParseTfConfig(launcher::TfConfigFor(plan, plan[0])));
  MUSTER_ASSIGN_OR_RETURN(const StrategyKind strategy, StrategyFor(job, config));
  MUSTER_RETURN_IF_ERROR(CheckMembers(job, config.world_size().value_or(0)));
  return strategy;
}

absl::Status CheckFaults(const std::vector<std::string>& texts, const launcher::ClusterSize& size) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<Fault> faults, ParseFaults(texts));
  std::vector<std::string> tasks;
  for (const launcher::PlannedTask& task : PlanOf(size)) tasks.push_back(task.Id());
  return FaultsOf("", std::move(faults), tasks).status();
}

// Sends the notice to the chief. Best effort: without the notice, the chief waits for its own
// deadlines.
void NotifyChief(const LaunchKey& key, const launcher::TaskExitNotice& notice) {
  rpc::ChannelOptions options;
  auto identity = key.IdentityIn(notice.tf_config);
  const auto cluster = ParseTfConfig(notice.tf_config);
  if (!identity.ok() || !cluster.ok() || !cluster->chief()) return;
  options.identity = *std::move(identity);
  options.server_task = cluster->chief()->ToString();
  const auto channel = rpc::MakeChannel(notice.address, options);
  if (!channel.ok()) return;
  proto::FailureReport report;
  report.set_protocol(kControlProtocol);
  report.set_task(notice.task);
  report.set_exit_code(static_cast<int>(ExitCode::kRetryable));
  report.set_message(notice.why);
  report.set_gone(true);
  report.set_pid(notice.pid);
  proto::FailureReply reply;
  (void)proto::Coordinator::NewStub(*channel)->ReportFailure(
      rpc::WithDeadline(std::chrono::seconds(2)).get(), report, &reply);
}

// Returns the GPUs that the tasks may use, none for a job on the CPU.
absl::StatusOr<std::vector<std::string>> GpusFor(const Job& job) {
  if (job.devices.starts_with("cpu")) return std::vector<std::string>();
  MUSTER_ASSIGN_OR_RETURN(const launcher::GpuInventory inventory, launcher::ReadGpus());
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  return launcher::VisibleGpus(
      inventory, variable == nullptr ? std::nullopt : std::optional<std::string>(variable));
}

absl::StatusOr<int> ParseWorkers(const std::string& text) {
  int workers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), workers);
  if (error == std::errc() && end == text.data() + text.size()) return workers;
  return ConfigurationError(fmt::format(
      "--workers is \"{}\": give the number of workers, or auto for one member on each GPU", text));
}

class LaunchCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "launch",
        "Run a job on a cluster of processes on this host, or on others with --hosts; exits with "
        "the job's verdict");
    app->add_option(
           "--workers", workers_,
           "Number of worker tasks, a chief is added; auto: one member for each GPU, or for "
           "each slot of --hosts")
        ->required()
        ->type_name("N");
    app->add_option("--ps", size_.ps, "Number of parameter servers")->type_name("N");
    app->add_flag("--evaluator", size_.evaluator, "Add an evaluator");
    app->add_flag("--no-chief", no_chief_, "No chief: worker 0 has its role");
    app->add_option("--job", job_, "The job file")->required()->type_name("FILE");
    AddSet(app, &overrides_);
    AddRepeated(app, "--fault", &faults_, "FAULT",
                "Inject a fault, for example kill@worker:1:step=30; may be repeated");
    app->add_option("--bin-dir", bin_dir_, "Where muster-chief, muster-worker, ... are")
        ->type_name("DIR")
        ->default_str("beside this binary");
    app->add_option("--key-file", key_file_,
                    "The run key, so that a task can be started by hand beside these")
        ->type_name("FILE")
        ->default_str("a new key for this launch");
    app->add_option("--status-port", status_port_,
                    "Serve the status page on this port, and print its address")
        ->type_name("PORT")
        ->check(CLI::Range(1, 65535));
    app->add_option("--restart", restart_,
                    "Start a task again that was killed or exited with a code from 128 on: never, "
                    "on-failure, or always (after 143 too)")
        ->type_name("POLICY")
        ->capture_default_str()
        ->check(CLI::IsMember(launcher::RestartPolicyNames()));
    app->add_option("--max-restarts", max_restarts_, "Times that each task is started again")
        ->type_name("N")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    app->add_option("--end-grace", end_grace_, "Seconds for the other tasks to end after the chief")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    app->add_option("--verdict-timeout", verdict_timeout_,
                    "Seconds for the chief to end after a task has failed")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    hosts_.Register(app);
    return app;
  }

  int Run() override {
    const absl::StatusOr<int> code = Launch();
    return code.ok() ? *code : ReportStatus("launch", code.status());
  }

 private:
  absl::StatusOr<int> Launch() {
    launcher::LaunchRequest request;
    size_.chief = !no_chief_;
    if (workers_ != "auto") {
      MUSTER_ASSIGN_OR_RETURN(size_.workers, ParseWorkers(workers_));
      MUSTER_RETURN_IF_ERROR(Check(size_));
    }
    if (status_port_ != 0) overrides_.push_back(fmt::format("status.port={}", status_port_));
    MUSTER_ASSIGN_OR_RETURN(hosts::HostsRequest remote, hosts_.Request());
    MUSTER_ASSIGN_OR_RETURN(const Job job, LoadJob(job_, overrides_));
    UseFileMode(job);
    std::vector<std::string> gpus;
    if (!hosts_.used()) {
      MUSTER_ASSIGN_OR_RETURN(gpus, GpusFor(job));
    }
    if (workers_ == "auto") {
      size_.workers = hosts_.used() ? hosts::WorkersFor(remote.hosts, size_)
                                    : launcher::WorkersFor(static_cast<int>(gpus.size()), size_);
      MUSTER_RETURN_IF_ERROR(Check(size_));
    }
    request.size = size_;
    MUSTER_ASSIGN_OR_RETURN(const StrategyKind strategy, StrategyOn(job, request.size));
    const launcher::GpuUse use{job.devices, strategy == StrategyKind::kParameterServer,
                               strategy == StrategyKind::kOneDevice};
    MUSTER_RETURN_IF_ERROR(CheckFaults(faults_, request.size));
    MUSTER_ASSIGN_OR_RETURN(const LaunchKey key, LaunchKey::Make(job, key_file_));
    request.model_dir = job.model_dir;
    MUSTER_RETURN_IF_ERROR(SetTasks(&request));
    if (hosts_.used()) {
      MUSTER_RETURN_IF_ERROR(SetHosts(key, use, &remote, &request));
    } else {
      MUSTER_ASSIGN_OR_RETURN(request.gpus, launcher::AssignGpus(gpus, PlanOf(request.size), use));
      request.environment = key.environment();
    }
    request.tell_chief = [&key](const launcher::TaskExitNotice& notice) {
      NotifyChief(key, notice);
    };
    SetOptions(job, strategy, &request.options);
    if (job.status.port != 0) {
      MUSTER_ASSIGN_OR_RETURN(const std::string token, key.ReadingToken());
      request.planned = [this, status = job.status, token](const launcher::PlannedTask& lead) {
        PrintPage(status, token, lead);
      };
    }
    FindTorchByEnvironment();
    return launcher::RunLaunch(request);
  }

  // Prints the URL of the status page, which the lead serves. Prints to the terminal and not to a
  // log, because the URL contains the token.
  void PrintPage(const StatusOptions& status, const std::string& token,
                 const launcher::PlannedTask& lead) const {
    const int port = static_cast<int>(status.port);
    const auto at = rpc::SplitHostPort(lead.address);
    const std::string host = hosts_.used() && at.ok() ? at->host : rpc::ThisHost().name;
    const std::string& address = status.address;
    const bool any = address == "0.0.0.0" || address == "::";
    const bool there = hosts_.used() && IsLoopback({address, port});
    fmt::print(
        stderr, "status page{}: http://{}/{}\n", there ? fmt::format(", on {} only", host) : "",
        rpc::JoinHostPort(any ? host : address, port), token.empty() ? "" : "?token=" + token);
  }

  // Sets the program, the arguments and the environment of all tasks.
  absl::Status SetTasks(launcher::LaunchRequest* request) const {
    request->bin_dir = bin_dir_;
    if (bin_dir_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(request->bin_dir, OwnFolder());
    }
    request->program = program_invocation_name;
    request->job = {"--job", job_};
    for (const std::string& override : overrides_)
      request->job.insert(request->job.end(), {"--set", override});
    for (const std::string& fault : faults_)
      request->arguments.insert(request->arguments.end(), {"--fault", fault});
    return absl::OkStatus();
  }

  // Sets up `request` to start the tasks on the hosts of `remote`.
  static absl::Status SetHosts(const LaunchKey& key, const launcher::GpuUse& use,
                               hosts::HostsRequest* remote, launcher::LaunchRequest* request) {
    remote->size = request->size;
    remote->gpus = use;
    remote->model_dir = request->model_dir;
    remote->bin_dir = request->bin_dir;
    remote->arguments = request->job;
    remote->arguments.insert(remote->arguments.end(), request->arguments.begin(),
                             request->arguments.end());
    MUSTER_ASSIGN_OR_RETURN(const std::optional<security::Secret> text, key.Text());
    if (text) remote->key = text->text();
    MUSTER_RETURN_IF_ERROR(hosts::PlaceTasks(remote->size, remote->hosts).status());
    request->logs_optional = true;
    request->make_processes = [remote = *remote](launcher::ProcessOutput& output) {
      return hosts::MakeSshProcesses(remote, output);
    };
    return absl::OkStatus();
  }

  void SetOptions(const Job& job, StrategyKind strategy, launcher::LaunchOptions* options) const {
    options->restart = launcher::RestartPolicyOf(restart_);
    options->max_restarts = max_restarts_;
    options->independent = strategy == StrategyKind::kParameterServer;
    options->elastic = job.elastic.min_workers.has_value() || job.elastic.spares > 0;
    options->end_grace = FromSeconds(end_grace_);
    options->verdict_timeout = FromSeconds(verdict_timeout_);
  }

  launcher::ClusterSize size_;
  int status_port_ = 0;
  LaunchHosts hosts_;
  bool no_chief_ = false;
  std::string workers_, job_, bin_dir_, key_file_;
  std::vector<std::string> overrides_, faults_;
  std::string restart_{
      launcher::kRestartPolicyNames[static_cast<int>(launcher::LaunchOptions().restart)]};
  int max_restarts_ = launcher::LaunchOptions().max_restarts;
  double end_grace_ = Seconds(launcher::LaunchOptions().end_grace);
  double verdict_timeout_ = Seconds(launcher::LaunchOptions().verdict_timeout);
};

}  // namespace

std::unique_ptr<Command> MakeLaunchCommand() { return std::make_unique<LaunchCommand>(); }

}  // namespace muster
