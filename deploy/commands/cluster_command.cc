#include "deploy/commands/cluster_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "common/cluster/cluster_config.h"
#include "common/rpc/host.h"
#include "deploy/cluster_file.h"
#include "deploy/launcher/gpus.h"
#include "deploy/own_folder.h"
#include "deploy/ranks/exit_codes.h"
#include "deploy/ranks/ranked_cluster.h"
#include "deploy/ranks/task_runner.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;
using ranks::kRankSourceNames;

template <typename T>
OrderedJson OrNull(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson ClusterJson(const ClusterConfig& config) {
  OrderedJson jobs = OrderedJson::object();
  for (const TaskId task : config.cluster.Tasks()) {
    jobs[std::string(TaskTypeName(task.type))].push_back(config.cluster.AddressOf(task).ToString());
  }
  if (config.dynamic) {
    OrderedJson& worker = jobs["worker"] = OrderedJson::object();
    for (const auto& [index, address] : config.dynamic->worker) {
      worker[std::to_string(index)] = address.ToString();
    }
    OrderedJson& ps = jobs["ps"] = OrderedJson::array();
    for (const Address& address : config.dynamic->ps) ps.push_back(address.ToString());
  }
  return jobs;
}

std::optional<std::string> Text(const std::optional<TaskId>& task) {
  return task ? std::optional<std::string>(task->ToString()) : std::nullopt;
}

// Scripts depend on these keys of `muster cluster --json`.
OrderedJson ToJson(const ClusterConfig& config) {
  return {{"task", OrNull(Text(config.task))},
          {"role", TaskTypeName(config.role())},
          {"rank", OrNull(config.rank())},
          {"world_size", OrNull(config.world_size())},
          {"chief", OrNull(Text(config.chief()))},
          {"cluster", ClusterJson(config)},
          {"environment", OrNull(config.environment)},
          {"warnings", config.warnings}};
}

struct Row {
  std::string rank, task, address, remark;
};

std::vector<Row> Roster(const ClusterConfig& config) {
  std::vector<Row> rows = {{"rank", "task", "address", ""}};
  const auto remark = [&config](TaskId task) { return config.task == task ? "<- this task" : ""; };
  int rank = 0;
  for (const TaskId task : config.cluster.Tasks()) {
    const bool member = task.type == TaskType::kChief || task.type == TaskType::kWorker;
    rows.push_back({member ? std::to_string(rank++) : "-", task.DisplayName(),
                    config.cluster.AddressOf(task).ToString(), remark(task)});
  }
  if (config.dynamic) {
    for (const auto& [index, address] : config.dynamic->worker) {
      const TaskId task{TaskType::kWorker, index};
      rows.push_back({"?", task.DisplayName(), address.ToString(), remark(task)});
    }
    // The configuration of a ps has only its own address.
    const bool own = config.task->type == TaskType::kPs;
    for (size_t i = 0; i < config.dynamic->ps.size(); ++i) {
      const TaskId task{TaskType::kPs, own ? config.task->index : static_cast<int>(i)};
      rows.push_back({"-", task.DisplayName(), config.dynamic->ps[i].ToString(), remark(task)});
    }
  }
  return rows;
}

void PrintRoster(const ClusterConfig& config) {
  const std::vector<Row> rows = Roster(config);
  size_t task_width = 0, address_width = 0;
  for (const Row& row : rows) {
    task_width = std::max(task_width, row.task.size());
    address_width = std::max(address_width, row.address.size());
  }
  for (const Row& row : rows) {
    std::string line = fmt::format("{:>4}  {:<{}}  {:<{}}  {}", row.rank, row.task, task_width,
                                   row.address, address_width, row.remark);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

std::string Place(const ClusterConfig& config) {
  if (config.rank()) {
    return fmt::format("rank {} of {}", *config.rank(), config.world_size().value_or(0));
  }
  if (config.role() == TaskType::kPs) return "serves parameters";
  if (config.role() == TaskType::kEvaluator) return "no member of training";
  return "rank unknown";
}

void PrintForPeople(const ClusterConfig& config) {
  if (config.local()) {
    fmt::print("no cluster: this process trains alone, as chief, rank 0 of 1\n");
  } else {
    PrintRoster(config);
    fmt::print("this task: {}, role {}, {}\n", config.task->DisplayName(),
               TaskTypeName(config.role()), Place(config));
    fmt::print("chief: {}\n", config.chief() ? config.chief()->DisplayName() : "unknown");
    if (!config.dynamic) {
      fmt::print("start this task with: {} --job FILE\n", BinaryName(config.task->type));
    }
    if (!config.cluster.ps.empty()) {
      fmt::print("strategy: parameter_server, since there are ps tasks: workers train{}\n",
                 config.cluster.chief ? ", the chief does not" : "");
    }
  }
  if (config.environment) fmt::print("environment: {}\n", *config.environment);
  for (const std::string& warning : config.warnings) fmt::print("warning: {}\n", warning);
}

launcher::PlannedTask PlannedFor(TaskId task, const ClusterConfig& config) {
  return {
      .type = task.type, .index = task.index, .address = config.cluster.AddressOf(task).ToString()};
}

// Returns the value of CUDA_VISIBLE_DEVICES for this task, nullopt without GPUs.
absl::StatusOr<std::optional<std::string>> ShareOfGpus(const ClusterConfig& config) {
  MUSTER_ASSIGN_OR_RETURN(const launcher::GpuInventory inventory, launcher::ReadGpus());
  MUSTER_ASSIGN_OR_RETURN(
      const std::vector<std::string> gpus,
      launcher::VisibleGpus(inventory, ProcessEnvironment()("CUDA_VISIBLE_DEVICES")));
  if (gpus.empty()) return std::nullopt;
  std::vector<launcher::PlannedTask> here;
  size_t own = 0;
  for (const TaskId task : config.cluster.Tasks()) {
    const Address& address = config.cluster.AddressOf(task);
    if (address.host != config.cluster.AddressOf(*config.task).host) continue;
    if (task == *config.task) own = here.size();
    here.push_back(PlannedFor(task, config));
  }
  launcher::GpuUse use;
  use.devices = "cuda";
  use.servers = !config.cluster.ps.empty();
  const absl::StatusOr<launcher::GpuPlan> plan = launcher::AssignGpus(gpus, here, use);
  if (plan.ok()) return plan->visible[own];
  // The job may train on the CPU. If not, its members are refused when they join.
  fmt::print(stderr,
             "muster: --divide-gpus: {} GPU{} for more members on this host, so each sees all\n",
             gpus.size(), gpus.size() == 1 ? "" : "s");
  return std::nullopt;
}

class ClusterCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "cluster",
        "Check TF_CONFIG, or derive it from a launcher's environment, and print roster, ranks and "
        "chief (exit code 2: refused), or run this process's task");
    app->add_flag("--json", json_, "Print one JSON object, for scripts");
    AddFrom(app);
    AddExec(app);
    return app;
  }

  int Run() override {
    const absl::StatusOr<int> result = Cluster();
    const int code = result.ok() ? *result : ReportStatus("cluster", result.status());
    if (!exit_codes_.empty() && !evaluator_) ranks::WriteExitCode(exit_codes_, rank_, code);
    return code;
  }

 private:
  void AddFrom(CLI::App* app) {
    const std::vector<std::string> sources(std::begin(kRankSourceNames),
                                           std::end(kRankSourceNames));
    app->add_option("--from", from_,
                    "Derive the cluster from the environment of this launcher: slurm, openmpi, "
                    "pmi or torchrun. Rank 0 is the chief")
        ->type_name("LAUNCHER")
        ->check(CLI::IsMember(sources));
    with_from_ = {
        app->add_option("--ps", roles_.ps, "The last ranks are N parameter servers")
            ->type_name("N"),
        app->add_flag("--evaluator", roles_.evaluator, "The last rank is an evaluator"),
        app->add_flag("--no-chief", no_chief_, "Rank 0 is worker 0, which has the chief's role"),
        app->add_option("--hosts", hosts_,
                        "The hosts in the order of their ranks, a:4,b:4, or a file of them, for "
                        "launchers that do not name them")
            ->type_name("HOSTS"),
        app->add_option("--port", port_, "Port of the first task of each host, others follow")
            ->type_name("PORT")
            ->default_str("by job number")};
    app->add_option("--cluster", cluster_file_,
                    "Take the cluster from this file instead, and the task from --task")
        ->type_name("FILE");
    app->add_option("--task", task_, "The task of this process in --cluster, for example worker:1")
        ->type_name("TASK");
    app->add_flag("--tf-config", tf_config_, "Print the value of TF_CONFIG of this process");
  }

  void AddExec(CLI::App* app) {
    app->add_flag("--exec", exec_,
                  "Run this process's task with the arguments that follow --, or in its place a "
                  "command of muster, if the first of them is muster");
    with_exec_ = {
        app->add_option("--restart", restart_,
                        "Start the task again that was killed or exited with a code from 128 on: "
                        "never, on-failure, or always (after 143 too)")
            ->type_name("POLICY")
            ->capture_default_str()
            ->check(CLI::IsMember(launcher::RestartPolicyNames())),
        app->add_option("--max-restarts", options_.max_restarts,
                        "Times that the task is started again")
            ->type_name("N")
            ->capture_default_str()
            ->check(CLI::NonNegativeNumber),
        app->add_flag("--divide-gpus", divide_gpus_,
                      "Divide the GPUs that this process sees among the tasks of this host"),
        app->add_option("--bin-dir", bin_dir_, "Where muster-chief, muster-worker, ... are")
            ->type_name("DIR")
            ->default_str("beside this binary"),
        app->add_option("--exit-codes", exit_codes_,
                        "With --restart: write the exit code of rank 0 to DIR/chief, and one from "
                        "1 to 127 of any rank but an evaluator to DIR/permanent")
            ->type_name("DIR")};
    app->add_option("ARGUMENTS", arguments_,
                    "With --exec, after --: of the task, --job FILE ..., or muster COMMAND ...");
  }

  // Checks combinations of options.
  absl::Status CheckOptions() const {
    if (json_ + tf_config_ + exec_ > 1)
      return ConfigurationError("--json, --tf-config and --exec are given: choose one of them");
    if (cluster_file_.empty() != task_.empty())
      return ConfigurationError("--cluster and --task belong together: give both, or neither");
    if (!cluster_file_.empty() && !from_.empty())
      return ConfigurationError("--cluster and --from both give the cluster: choose one of them");
    const auto given = [](const std::vector<CLI::Option*>& options) -> const CLI::Option* {
      const auto it = std::find_if(options.begin(), options.end(),
                                   [](const CLI::Option* option) { return option->count() > 0; });
      return it == options.end() ? nullptr : *it;
    };
    if (const CLI::Option* option = given(with_from_); option != nullptr && from_.empty()) {
      return ConfigurationError(fmt::format(
          "{} is given without --from: TF_CONFIG lists the tasks and their addresses itself",
          option->get_name()));
    }
    if (!exit_codes_.empty() && restart_ == launcher::kRestartPolicyNames[0]) {
      return ConfigurationError(
          "--exit-codes is given without --restart: without it this process becomes the task");
    }
    if (const CLI::Option* option = given(with_exec_); option != nullptr && !exec_) {
      return ConfigurationError(
          fmt::format("{} is given without --exec, which runs the task", option->get_name()));
    }
    if (exec_ || arguments_.empty()) return absl::OkStatus();
    return ConfigurationError(fmt::format(
        "there is \"{}\", and arguments are for the task that --exec runs", arguments_.front()));
  }

  absl::StatusOr<int> Cluster() {
    MUSTER_RETURN_IF_ERROR(CheckOptions());
    MUSTER_ASSIGN_OR_RETURN(const std::optional<std::string> text, TfConfig());
    MUSTER_ASSIGN_OR_RETURN(const ClusterConfig config, ParseTfConfig(text));
    if (exec_) return Exec(config, text);
    if (json_) {
      fmt::print("{}\n", ToJson(config).dump());
    } else if (tf_config_) {
      fmt::print("{}\n", text.value_or("{}"));
    } else {
      PrintForPeople(config);
    }
    return 0;
  }

  // Returns the value of TF_CONFIG, nullopt if it is not set.
  absl::StatusOr<std::optional<std::string>> TfConfig() {
    const Environment environment = ProcessEnvironment();
    if (!cluster_file_.empty()) return FromFile();
    if (from_.empty()) return environment("TF_CONFIG");
    ranks::RankOptions options;
    options.port = port_;
    options.own_host = rpc::ThisHost().name;
    if (!hosts_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(options.hosts, ranks::ReadHosts(hosts_));
    }
    const auto source = std::find(std::begin(kRankSourceNames), std::end(kRankSourceNames), from_);
    absl::StatusOr<ranks::Ranks> ranks =
        ranks::ReadRanks(static_cast<ranks::RankSource>(source - std::begin(kRankSourceNames)),
                         environment, options);
    if (!ranks.ok()) return Annotate(ranks.status(), fmt::format("--from {}: ", from_));
    if (exec_ && !ranks->started && ranks->addresses.size() > 1) {
      return ConfigurationError(
          "--from slurm: SLURM_STEP_NODELIST is not set, so this is the script of the job and no "
          "task of it: put srun before muster cluster");
    }
    restarts_ = ranks->restarts;
    rank_ = ranks->rank;
    roles_.chief = !no_chief_;
    absl::StatusOr<std::string> text = ranks::TfConfigOf(*ranks, roles_);
    if (!text.ok()) return Annotate(text.status(), fmt::format("--from {}: ", from_));
    return *std::move(text);
  }

  absl::StatusOr<std::optional<std::string>> FromFile() const {
    MUSTER_ASSIGN_OR_RETURN(const ClusterSpec cluster, ReadClusterFile(cluster_file_));
    const std::optional<TaskId> task = ParseTaskId(task_);
    if (!task) {
      return ConfigurationError(fmt::format(
          "--task is \"{}\", which is not a task: write chief:0, worker:1, ps:0 or evaluator:0",
          task_));
    }
    const Json json = {{"cluster", cluster.ToJson()},
                       {"task", {{"type", TaskTypeName(task->type)}, {"index", task->index}}}};
    return json.dump();
  }

  absl::StatusOr<int> Exec(const ClusterConfig& config, const std::optional<std::string>& text) {
    // A command of muster, such as muster preflight, runs instead of the task.
    const bool own_command = !arguments_.empty() && arguments_.front() == "muster";
    if (arguments_.empty() || (!own_command && !arguments_.front().starts_with("-"))) {
      return ConfigurationError(
          "--exec chooses the program by the task: write its arguments, --exec -- --job FILE, or a "
          "command of muster to run in its place, --exec -- muster preflight --job FILE");
    }
    for (const std::string& warning : config.warnings)
      fmt::print(stderr, "muster: warning: {}\n", warning);
    const TaskId task = config.task.value_or(TaskId{TaskType::kWorker, 0});
    evaluator_ = task.type == TaskType::kEvaluator;
    ranks::TaskCommand command;
    command.task = {.type = task.type, .index = task.index};
    command.restarts = restarts_;
    if (bin_dir_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(bin_dir_, OwnFolder());
    }
    command.arguments = {bin_dir_ + "/" + (own_command ? "muster" : BinaryName(task.type))};
    command.arguments.insert(command.arguments.end(), arguments_.begin() + (own_command ? 1 : 0),
                             arguments_.end());
    if (text) command.environment["TF_CONFIG"] = *text;
    if (divide_gpus_ && config.cluster.Has(task)) {
      MUSTER_ASSIGN_OR_RETURN(const std::optional<std::string> gpus, ShareOfGpus(config));
      if (gpus) command.environment["CUDA_VISIBLE_DEVICES"] = *gpus;
    }
    FindTorchByEnvironment();
    options_.restart = launcher::RestartPolicyOf(restart_);
    if (options_.restart != launcher::RestartPolicy::kNever)
      return ranks::SuperviseTask(command, options_);
    return ranks::ExecTask(command);
  }

  bool json_ = false, tf_config_ = false, exec_ = false, no_chief_ = false, divide_gpus_ = false;
  bool evaluator_ = false;  // Its exit code never ends a job.
  std::string from_, hosts_, bin_dir_, cluster_file_, task_, exit_codes_;
  std::optional<int> port_;
  std::optional<int> rank_;  // The rank in the launcher.
  int restarts_ = 0;
  ranks::RankRoles roles_;
  std::vector<CLI::Option*> with_from_, with_exec_;  // Options that require --from, --exec.
  std::vector<std::string> arguments_;
  launcher::LaunchOptions options_;
  std::string restart_{
      launcher::kRestartPolicyNames[static_cast<int>(launcher::LaunchOptions().restart)]};
};

}  // namespace

std::unique_ptr<Command> MakeClusterCommand() { return std::make_unique<ClusterCommand>(); }

}  // namespace muster
