#include "deploy/commands/preflight_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/cluster/cluster_config.h"
#include "common/cluster/verdict.h"
#include "common/job/cuda_presence.h"
#include "common/job/job.h"
#include "common/job/job_files.h"
#include "common/process/data_port.h"
#include "common/process/task_identity.h"
#include "common/rpc/host.h"
#include "common/rpc/server/listen.h"
#include "common/security/identity.h"
#include "common/transport/address.h"
#include "deploy/preflight/checks.h"
#include "deploy/preflight/gpu_health.h"
#include "deploy/preflight/neighbours.h"
#include "deploy/preflight/survey.h"
#include "muster/version.h"

namespace muster {
namespace {

using preflight::Check;
using preflight::Neighbour;
using preflight::Neighbours;
using preflight::Reachability;
using preflight::Survey;

constexpr char kPlaintext[] = "plaintext";

Check FromStatus(std::string name, const absl::Status& status, std::string what) {
  if (status.ok()) return {.name = std::move(name), .what = std::move(what)};
  return {.name = std::move(name), .ok = false, .what = std::string(Message(status))};
}

class PreflightCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "preflight",
        "Run in every task before the job: checks names, ports both ways, interface, /dev/shm, "
        "model_dir and GPUs, compares job files, versions and clocks, measures MTU and rate "
        "between hosts (exit code 2: configuration, 138: a task was not reached)");
    app->add_option("--job", job_file_, "The job file")->type_name("FILE");
    AddSet(app, &overrides_);
    app->add_option("--timeout", timeout_, "Seconds to wait for the other tasks")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    app->add_option("--measure", measure_,
                    "Seconds at most for measuring the paths between all hosts; 0: do not")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    app->add_flag("--json", json_, "Print one JSON object, for scripts");
    return app;
  }

  int Run() override {
    const absl::StatusOr<ClusterConfig> config = ClusterFromEnvironment(ProcessEnvironment());
    if (!config.ok()) return ReportStatus("preflight", config.status());
    config_ = *config;
    if (config_.dynamic)
      return ReportStatus(
          "preflight", ConfigurationError("TF_CONFIG lists only a part of the cluster (Kubeflow's "
                                          "dynamic workers), so preflight cannot check it"));
    if (!job_file_.empty()) {
      absl::StatusOr<Job> job = LoadJob(job_file_, overrides_);
      if (!job.ok()) return ReportStatus("preflight", job.status());
      job_ = *std::move(job);
      DigestFiles(&job_);
    }
    CheckHere();
    if (!config_.local()) CheckNeighbours();
    Print();
    return static_cast<int>(preflight::CodeOf(checks_));
  }

 private:
  std::string self() const { return config_.task->ToString(); }
  bool listed() const { return config_.cluster.Has(*config_.task); }

  void CheckHere() {
    checks_.push_back({.name = "cluster", .what = config_.Who()});
    if (!config_.local() && listed()) {
      const std::string& host = config_.cluster.AddressOf(*config_.task).host;
      const std::vector<TaskId> members = config_.cluster.Members();
      const auto here = std::count_if(members.begin(), members.end(), [&](const TaskId& task) {
        return config_.cluster.AddressOf(task).host == host;
      });
      if (config_.cluster.ps.empty())
        checks_.push_back(preflight::CheckSharedMemory(static_cast<int>(here)));
      else
        checks_.push_back(
            {.name = "shared memory",
             .what = "not needed: the shared memory of parameter servers is in no file system"});
      CheckInterface();
    }
    if (job_file_.empty()) return CheckGpuHealth();
    const auto strategy = StrategyFor(job_, config_);
    checks_.push_back(FromStatus("strategy", strategy.status(),
                                 strategy.ok() ? std::string(StrategyName(*strategy)) : ""));
    if (config_.role() == TaskType::kChief)
      checks_.push_back(preflight::CheckModelDir(job_.model_dir));
    if (!strategy.ok() || !Computes(*strategy)) return;
    checks_.push_back(preflight::CheckGpus(job_.devices, preflight::CountGpus()));
    if (MayUseCuda(job_.devices)) CheckGpuHealth();
  }

  void CheckGpuHealth() {
    gpus_ = preflight::ReadGpuHealth();
    const preflight::GpuChoice choice = {.devices = job_.devices,
                                         .visible = ProcessEnvironment()("CUDA_VISIBLE_DEVICES")};
    for (Check& check : preflight::JudgeGpus(gpus_, choice)) checks_.push_back(std::move(check));
  }

  // Returns true if this task trains or evaluates. Neither a ps nor a chief with servers does.
  bool Computes(StrategyKind strategy) const {
    if (config_.local()) return true;
    const TaskType type = config_.task->type;
    if (type == TaskType::kChief) return strategy != StrategyKind::kParameterServer;
    return type != TaskType::kPs;
  }

  void CheckInterface() {
    const std::string& wanted = job_.collective.interface;
    if (!wanted.empty()) {
      const auto address = transport::InterfaceAddress(wanted);
      return checks_.push_back(FromStatus(
          "interface", address.status(),
          address.ok() ? fmt::format("{}: {} (collective.interface)", wanted, *address) : ""));
    }
    if (!config_.chief()) return;
    const std::string chief = config_.cluster.AddressOf(*config_.chief()).ToString();
    const auto address = rpc::LocalAddressTowards(chief);
    Check check = FromStatus("interface", address.status(),
                             address.ok() ? fmt::format("{}, the way to the chief", *address) : "");
    check.configuration = false;  // Names may become resolvable later.
    checks_.push_back(std::move(check));
  }

  void CheckNeighbours() {
    preflight::NeighbourOptions options;
    options.self = self();
    for (const TaskId& task : config_.cluster.Tasks())
      options.addresses[task.ToString()] = config_.cluster.AddressOf(task).ToString();
    options.version = MUSTER_VERSION;
    options.cluster_digest = config_.cluster.Digest();
    options.identity = CheckIdentity();
    if (listed()) {
      const std::string own = options.addresses[self()];
      const auto plan = rpc::PlanListen(own, Duration::zero());
      checks_.push_back(FromStatus("own port", plan.status(), own + " is free"));
      if (!plan.ok()) return;
      options.listen = plan->addresses;
    }
    const std::unique_ptr<Survey> survey = MakeSurvey(options);
    options.on_session = [&survey](Fd socket, std::string line) {
      survey->Accept(std::move(socket), std::move(line));
    };
    auto neighbours = Neighbours::Start(options);
    if (!neighbours.ok()) {
      checks_.push_back(FromStatus("own port", neighbours.status(), ""));
      return;
    }
    const MonotonicTime start = Clock::now();
    found_ = (*neighbours)->Wait(FromSeconds(timeout_));
    const MonotonicTime met = Clock::now();
    for (const auto& [task, neighbour] : found_.neighbours)
      Judge(task, options.addresses.at(task), neighbour);
    Compare(*survey);
    checks_.push_back(
        {.name = "time",
         .what = fmt::format("{:.1f} s to meet (at most {:g}), {:.1f} s to compare and measure "
                             "(at most {:g})",
                             Seconds(met - start), timeout_, Seconds(Clock::now() - met),
                             Seconds(Survey::MostTime(FromSeconds(measure_))))});
  }

  std::unique_ptr<Survey> MakeSurvey(const preflight::NeighbourOptions& options) {
    preflight::SurveyOptions survey;
    survey.session = {
        .self = options.self, .cluster_digest = options.cluster_digest, .identity = peer_identity_};
    survey.leader = Leader();
    survey.addresses = options.addresses;
    survey.measuring = FromSeconds(measure_);
    return Survey::Make(survey);
  }

  // Returns the task that leads the comparison: the chief, or the first task of a cluster without
  // one.
  std::string Leader() const {
    return config_.chief().value_or(config_.cluster.Tasks().front()).ToString();
  }

  // Returns why no session with `task` is possible, "" if one is.
  std::string Obstacle(const std::string& task) const {
    const Neighbour& neighbour = found_.neighbours.at(task);
    const std::string who = TaskText(task);
    if (!neighbour.reached) return who + " was not reached";
    if (neighbour.version != MUSTER_VERSION) return who + " has another version";
    if (neighbour.cluster_digest != config_.cluster.Digest()) return who + " has another cluster";
    if (!preflight::AcceptEachOther(identity_, neighbour.identity)) return who + " has another key";
    return "";
  }

  std::string FirstObstacle() const {
    for (const auto& [task, neighbour] : found_.neighbours)
      if (std::string obstacle = Obstacle(task); !obstacle.empty()) return obstacle;
    return found_.complete ? "" : "not every task has reached every other one";
  }

  // Compares the tasks and measures the paths between them, if sessions between them are possible.
  void Compare(Survey& survey) {
    const bool leads = self() == Leader();
    std::string obstacle = leads ? FirstObstacle() : Obstacle(Leader());
    if (obstacle.empty() && !found_.complete)
      obstacle = "not every task has reached every other one";
    if (!identified_) obstacle = "this task cannot prove which one it is";
    if (!obstacle.empty()) {
      checks_.push_back({.name = "comparison",
                         .what = fmt::format("no comparison: {}", obstacle),
                         .warning = true});
      if (!leads) return;
      std::vector<std::string> tasks;
      for (const auto& [task, neighbour] : found_.neighbours)
        if (Obstacle(task).empty()) tasks.push_back(task);
      return survey.Cancel(tasks, obstacle);
    }
    survey.SetFacts(OwnFacts());
    preflight::SurveyResult result = leads      ? survey.Lead()
                                     : listed() ? survey.Follow()
                                                : survey.CompareWithLeader();
    for (Check& check : result.checks) checks_.push_back(std::move(check));
    paths_ = std::move(result.paths);
  }

  preflight::Facts OwnFacts() {
    preflight::Facts facts;
    const auto address = job_.collective.interface.empty()
                             ? rpc::LocalAddressTowards(DataRoute(config_))
                             : transport::InterfaceAddress(job_.collective.interface);
    if (address.ok()) facts.data_address = *address;
    const rpc::HostIdentity host = rpc::ThisHost();
    facts.task = self();
    facts.host = host.name;
    facts.host_id = host.id;
    if (!job_file_.empty()) facts.job = JobToJson(job_);
    facts.versions["Muster"] = MUSTER_VERSION;
#ifdef MUSTER_TORCH_VERSION
    facts.versions["LibTorch"] = MUSTER_TORCH_VERSION;
#endif
    const std::string driver =
        gpus_.driver_version.empty() ? DriverVersionHere() : gpus_.driver_version;
    if (!driver.empty()) facts.versions["NVIDIA driver"] = driver;
    if (!gpus_.nccl_version.empty()) facts.versions["NCCL"] = gpus_.nccl_version;
    for (const Check& check : checks_)
      if (!check.ok || check.warning) facts.checks.push_back(check);
    return facts;
  }

  // Checks this task's identity. Returns the names of the certificate authorities that it accepts,
  // its own first.
  std::vector<std::string> CheckIdentity() {
    const auto identity = IdentityFor(config_, job_);
    if (identity.ok()) peer_identity_ = *identity;
    Check check = FromStatus("identity", identity.status(), kPlaintext);
    if (identity.ok()) identity_ = {kPlaintext};
    if (identity.ok() && *identity != nullptr) {
      identity_ = (*identity)->Authorities();
      check.what = ((*identity)->from_files() ? "certificates, " : "run key, ") +
                   absl::StrJoin(identity_, ", and accepts ");
      if (const std::string file = (*identity)->Expired(); !file.empty())
        check = {.name = "identity",
                 .ok = false,
                 .what = fmt::format("the certificate {} has expired: peers refuse it", file),
                 .fix = "put a new one in its place"};
    }
    identified_ = check.ok;
    checks_.push_back(std::move(check));
    return identity_;
  }

  void Judge(const std::string& task, const std::string& address, const Neighbour& neighbour) {
    Check check{.name = TaskText(task), .configuration = false};
    check.ok = neighbour.reached && (neighbour.called || !listed());
    if (!neighbour.reached) {
      check.what =
          fmt::format("{} was not reached within {:g} s: {}", address, timeout_, neighbour.why);
    } else if (!check.ok) {
      check.what = fmt::format("{} was reached, but did not reach this task within {:g} s", address,
                               timeout_);
      check.fix =
          "look for a firewall or NAT in front of this host, and for the address that the "
          "cluster gives it";
    } else {
      check.what = fmt::format("{} on host {}, both ways", address, neighbour.host);
    }
    checks_.push_back(std::move(check));
    if (neighbour.version.empty()) return;
    if (neighbour.version != MUSTER_VERSION)
      checks_.push_back({.name = "version",
                         .ok = false,
                         .what = fmt::format("{} runs Muster {}, this task {}", TaskText(task),
                                             neighbour.version, MUSTER_VERSION),
                         .fix = "start all tasks from one version"});
    ReportIdentity(task, neighbour);
    if (neighbour.cluster_digest != config_.cluster.Digest())
      checks_.push_back({.name = "cluster",
                         .ok = false,
                         .what = fmt::format("{} was started with another cluster", TaskText(task)),
                         .fix = "give all tasks the same TF_CONFIG cluster"});
  }

  void ReportIdentity(const std::string& task, const Neighbour& neighbour) {
    if (identity_.empty()) return;  // CheckIdentity has reported the problem.
    if (preflight::AcceptEachOther(identity_, neighbour.identity)) return;
    const auto keyless = [](const auto& identity) {
      return identity.empty() || identity[0] == kPlaintext;
    };
    const std::string who = TaskText(task);
    std::string what = fmt::format("{} has no key", who);
    if (!keyless(neighbour.identity))
      what = keyless(identity_) ? fmt::format("{} has a key ({}), and this task has none", who,
                                              neighbour.identity[0])
                                : fmt::format("{} has another key than this task ({}, not {})", who,
                                              neighbour.identity[0], identity_[0]);
    checks_.push_back({.name = "identity",
                       .ok = false,
                       .what = std::move(what),
                       .fix = "give all tasks one run key, or certificates of one authority"});
  }

  // Returns a table with a row for each calling task and a column for each called task: "yes",
  // "no", or "?" if the calling task has not reported.
  std::vector<std::vector<std::string>> Table() const {
    std::vector<std::vector<std::string>> rows = {{"reached by"}};
    for (const TaskId& to : config_.cluster.Tasks()) rows[0].push_back(to.DisplayName());
    for (const TaskId& from : config_.cluster.Tasks()) {
      std::vector<std::string> row = {from.DisplayName()};
      const auto known = found_.reached.find(from.ToString());
      for (const TaskId& to : config_.cluster.Tasks()) {
        const bool own = from == config_.task;
        std::string cell = own || known != found_.reached.end() ? "no" : "?";
        if (from == to) cell = "-";
        if (known != found_.reached.end() && known->second.contains(to.ToString())) cell = "yes";
        row.push_back(cell);
      }
      rows.push_back(row);
    }
    return rows;
  }

  void Print() const {
    if (json_) return PrintJson();
    for (const std::string& line : preflight::Lines(checks_)) fmt::print("{}\n", line);
    if (config_.local() || config_.cluster.Tasks().size() < 2) return;
    fmt::print("\n");
    const auto rows = Table();
    std::vector<size_t> widths(rows[0].size());
    for (const auto& row : rows)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : rows) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
      line.erase(line.find_last_not_of(' ') + 1);
      fmt::print("{}\n", line);
    }
  }

  void PrintJson() const {
    nlohmann::ordered_json checks = nlohmann::ordered_json::array(),
                           reached = nlohmann::ordered_json::object(),
                           paths = nlohmann::ordered_json::array();
    for (const Check& check : checks_)
      checks.push_back({{"name", check.name},
                        {"ok", check.ok},
                        {"warning", check.warning},
                        {"what", check.what},
                        {"mend", check.fix}});
    for (const auto& [task, others] : found_.reached) reached[task] = others;
    for (const preflight::PathFacts& path : paths_)
      paths.push_back({{"from", path.from},
                       {"to", path.to},
                       {"problem", path.problem},
                       {"mtu", path.mtu},
                       {"bits_per_second", path.bits_per_second},
                       {"round_trip_seconds", path.round_trip}});
    const nlohmann::ordered_json json = {
        {"exit_code", static_cast<int>(preflight::CodeOf(checks_))},
        {"checks", checks},
        {"reached", reached},
        {"paths", paths}};
    fmt::print("{}\n", Dump(json));
  }

  std::string job_file_;
  std::vector<std::string> overrides_;
  double timeout_ = 30, measure_ = 60;
  bool json_ = false;
  ClusterConfig config_;
  Job job_;
  Reachability found_;
  std::vector<std::string> identity_;  // Empty: not available.
  std::shared_ptr<security::Identity> peer_identity_;
  bool identified_ = false;  // The check of the identity has not failed.
  preflight::GpuReport gpus_;
  std::vector<preflight::PathFacts> paths_;
  std::vector<Check> checks_;
};

}  // namespace

std::unique_ptr<Command> MakePreflightCommand() { return std::make_unique<PreflightCommand>(); }

}  // namespace muster
