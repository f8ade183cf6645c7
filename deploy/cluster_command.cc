#include "deploy/cluster_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "common/cluster/cluster_config.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;

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

class ClusterCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "cluster", "Check TF_CONFIG and print roster, ranks and chief (exit code 2: refused)");
    app->add_flag("--json", json_, "Print one JSON object, for scripts");
    return app;
  }

  int Run() override {
    const absl::StatusOr<ClusterConfig> config = ClusterFromEnvironment(ProcessEnvironment());
    if (!config.ok()) return ReportError("cluster", config.status());
    if (json_) {
      fmt::print("{}\n", ToJson(*config).dump());
    } else {
      PrintForPeople(*config);
    }
    return 0;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeClusterCommand() { return std::make_unique<ClusterCommand>(); }

}  // namespace muster
