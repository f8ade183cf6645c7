// Converts TF_CONFIG to ClusterConfig. Launchers write different forms of TF_CONFIG, and all
// accepted forms give the same normalized ClusterConfig. Other forms are refused with one sentence.
#include <fmt/format.h>

#include <cmath>

#include "common/cluster/cluster_config.h"

namespace muster {
namespace {

// Formats any JSON value for a message, shortened and on one line.
std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 76) + "...\"";
  return text;
}

std::string Field(TaskType type) { return fmt::format("cluster.{}", TaskTypeName(type)); }
std::string Field(TaskType type, int index) {
  return fmt::format("cluster.{}[{}]", TaskTypeName(type), index);
}
std::string IndexRange(int count) {
  return count == 1 ? "0" : fmt::format("a number from 0 to {}", count - 1);
}

std::vector<std::string> TaskTypeNames() {
  std::vector<std::string> names;
  for (const TaskType type : kAllTaskTypes) names.emplace_back(TaskTypeName(type));
  names.emplace_back("master");
  return names;
}

std::string TypeHint(const std::string& name) {
  // A word of one or two letters gets no suggestion, because all of them are similar to "ps".
  const std::string nearest = name.size() > 2 ? Nearest(name, TaskTypeNames()) : "";
  return nearest.empty() ? "use chief, worker, ps or evaluator"
                         : fmt::format("did you mean \"{}\"?", nearest);
}

// Reads a whole number that is not negative, as a number or as digits in a string ("1", which
// templates write). A number too large for an int becomes INT_MAX, which is outside any cluster.
absl::StatusOr<int> ReadIndex(const Json& value) {
  constexpr int kHuge = std::numeric_limits<int>::max();
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const absl::StatusOr<Json> number = ParseJson(text, "it");
    if (!number.ok() || !number->is_number() || text.find('/') != std::string::npos)
      return ConfigurationError("is not a number");
    return ReadIndex(*number);
  }
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number > kHuge ? kHuge : static_cast<int>(number);
  }
  if (value.is_number_integer()) return ConfigurationError("is negative");
  if (!value.is_number_float()) return ConfigurationError("is not a number");
  const double number = value.get<double>();
  if (number != std::floor(number)) return ConfigurationError("is not a whole number");
  if (number < 0) return ConfigurationError("is negative");
  return number >= kHuge ? kHuge : static_cast<int>(number);
}

absl::StatusOr<Address> ReadAddress(const std::string& field, const Json& value) {
  if (!value.is_string()) {
    return ConfigurationError(
        fmt::format("{} is {}, which is no address: write \"host:port\"", field, Shown(value)));
  }
  absl::StatusOr<Address> address = ParseAddress(value.get_ref<const std::string&>());
  if (address.ok()) return address;
  return ConfigurationError(
      fmt::format("{} is {}, which {}", field, Shown(value), Message(address.status())));
}

// Reads {"0": address, "1": address}, in any order.
absl::StatusOr<std::map<int, Address>> ReadSparse(TaskType type, const Json& json) {
  std::map<int, Address> by_index;
  for (const auto& [key, value] : json.items()) {
    const absl::StatusOr<int> index = ReadIndex(key);
    if (!index.ok()) {
      return ConfigurationError(
          fmt::format("{} has the key {}, which {}: write the indexes 0, 1, ... as keys",
                      Field(type), Shown(key), Message(index.status())));
    }
    MUSTER_ASSIGN_OR_RETURN(const Address address, ReadAddress(Field(type, *index), value));
    if (!by_index.emplace(*index, address).second) {
      return ConfigurationError(
          fmt::format("{} has two addresses for index {}: keep one", Field(type), *index));
    }
  }
  return by_index;
}

absl::StatusOr<std::vector<Address>> ReadAddresses(TaskType type, const Json& json) {
  std::vector<Address> addresses;
  if (json.is_object()) {
    MUSTER_ASSIGN_OR_RETURN(const auto by_index, ReadSparse(type, json));
    for (const auto& [index, address] : by_index) {
      if (index != static_cast<int>(addresses.size())) {
        return ConfigurationError(fmt::format("{} has index {} but not {}: list every index from 0",
                                              Field(type), index, addresses.size()));
      }
      addresses.push_back(address);
    }
    return addresses;
  }
  if (!json.is_array()) {
    return ConfigurationError(fmt::format("{} is {}, which is no list: write [\"host:port\", ...]",
                                          Field(type), Shown(json)));
  }
  for (const Json& value : json) {
    MUSTER_ASSIGN_OR_RETURN(Address address,
                            ReadAddress(Field(type, static_cast<int>(addresses.size())), value));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

using Jobs = std::map<TaskType, const Json*>;

// Returns the jobs of a cluster by type. null counts as absent. `json` must outlive the result.
absl::StatusOr<Jobs> ReadJobs(const Json& json) {
  if (!json.is_object()) {
    return ConfigurationError(fmt::format(
        "cluster is {}, which names no jobs: write {{\"worker\": [\"host:port\", ...]}}",
        Shown(json)));
  }
  Jobs jobs;
  std::map<TaskType, std::string> spelling;
  for (const auto& [key, value] : json.items()) {
    const std::optional<TaskType> type = TaskTypeFromName(key);
    if (!type) {
      return ConfigurationError(
          fmt::format("cluster has the unknown job {}: {}", Shown(key), TypeHint(key)));
    }
    if (value.is_null()) continue;
    if (!jobs.emplace(*type, &value).second) {
      return ConfigurationError(
          fmt::format("cluster has both {} and {}, which mean the same{}: keep one of them",
                      Shown(spelling[*type]), Shown(key),
                      *type == TaskType::kChief ? ", and a cluster has one chief" : ""));
    }
    spelling[*type] = key;
  }
  return jobs;
}

absl::Status CheckDistinct(const ClusterSpec& spec) {
  std::map<std::string, TaskId> seen;
  for (const TaskId task : spec.Tasks()) {
    const Address& address = spec.AddressOf(task);
    const auto [other, is_new] = seen.emplace(address.Key(), task);
    if (is_new) continue;
    return ConfigurationError(fmt::format(
        "{} is \"{}\", which is the address of {} too: give each task an address of its own",
        Field(task.type, task.index), address.ToString(),
        Field(other->second.type, other->second.index)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec> SpecFromJobs(const Jobs& jobs) {
  ClusterSpec spec;
  std::vector<Address> chiefs;
  const std::pair<TaskType, std::vector<Address>*> kinds[] = {
      {TaskType::kChief, &chiefs},
      {TaskType::kWorker, &spec.worker},
      {TaskType::kPs, &spec.ps},
      {TaskType::kEvaluator, &spec.evaluator}};
  for (const auto& [type, addresses] : kinds) {
    const auto it = jobs.find(type);
    if (it == jobs.end()) continue;
    MUSTER_ASSIGN_OR_RETURN(*addresses, ReadAddresses(type, *it->second));
  }
  if (chiefs.size() > 1) {
    return ConfigurationError(
        fmt::format("cluster.chief lists {} addresses, but a cluster has one chief: move the "
                    "others to cluster.worker",
                    chiefs.size()));
  }
  if (!chiefs.empty()) spec.chief = chiefs.front();
  MUSTER_RETURN_IF_ERROR(CheckDistinct(spec));
  if (!spec.empty() && spec.Members().empty()) {
    return ConfigurationError(
        "cluster has neither a chief nor a worker, so nobody would train: add a \"worker\" job");
  }
  return spec;
}

absl::StatusOr<TaskType> ReadTaskType(const Json& task) {
  const auto type = task.find("type");
  if (type == task.end() || type->is_null()) {
    return ConfigurationError("task.type is missing: set it to chief, worker, ps or evaluator");
  }
  if (!type->is_string()) {
    return ConfigurationError(
        fmt::format("task.type is {}, which is no task type: set it to chief, worker, ps or "
                    "evaluator",
                    Shown(*type)));
  }
  const std::string& name = type->get_ref<const std::string&>();
  if (const auto known = TaskTypeFromName(name)) return *known;
  return ConfigurationError(
      fmt::format("task.type is {}, which is unknown: {}", Shown(*type), TypeHint(name)));
}

// Reads the "task" object. Does not check the task against the cluster.
absl::StatusOr<TaskId> ReadTask(const Json& task) {
  if (!task.is_object()) {
    return ConfigurationError(
        fmt::format("task is {}, which names no task: write {{\"type\": \"worker\", \"index\": 0}}",
                    Shown(task)));
  }
  MUSTER_ASSIGN_OR_RETURN(const TaskType type, ReadTaskType(task));
  const auto index = task.find("index");
  if (index == task.end() || index->is_null()) {
    return ConfigurationError(fmt::format(
        "task.index is missing: set it to the number of this {}, from 0", TaskTypeName(type)));
  }
  const absl::StatusOr<int> number = ReadIndex(*index);
  if (!number.ok()) {
    return ConfigurationError(
        fmt::format("task.index is {}, which {}: set it to the number of this {}, from 0",
                    Shown(*index), Message(number.status()), TaskTypeName(type)));
  }
  return TaskId{type, *number};
}

absl::Status CheckTaskInCluster(TaskId task, const Json& index, const ClusterSpec& cluster) {
  const int count = cluster.Count(task.type);
  if (cluster.Has(task)) return absl::OkStatus();
  if (count > 0) {
    return ConfigurationError(fmt::format(
        "task.index is {}, but {} has {} address{}: set it to {}, or add the missing addresses",
        Shown(index), Field(task.type), count, count == 1 ? "" : "es", IndexRange(count)));
  }
  // Some launchers do not list the evaluator, which is not a member of training.
  if (task.type == TaskType::kEvaluator) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("task.type is \"{}\", but the cluster has no {}: add {} to the cluster, or "
                  "correct task.type",
                  TaskTypeName(task.type), TaskTypeName(task.type), Field(task.type)));
}

// Returns whether the cluster has the form of Kubeflow's enableDynamicWorker. In this form, worker
// i has only its own address, as {"i": address}, and the addresses of all ps. A ps has only its own
// address, and other tasks have none. Only the JSON types distinguish this form from a complete
// cluster: workers are an object, and ps are a list.
bool IsDynamicForm(const Jobs& jobs, TaskId task) {
  const auto worker = jobs.find(TaskType::kWorker), ps = jobs.find(TaskType::kPs);
  if (worker == jobs.end() || !worker->second->is_object()) return false;
  if (jobs.contains(TaskType::kChief) || jobs.contains(TaskType::kEvaluator)) return false;
  if (ps != jobs.end() && !ps->second->is_array()) return false;
  const size_t num_ps = ps == jobs.end() ? 0 : ps->second->size();
  switch (task.type) {
    case TaskType::kWorker:
      return ps != jobs.end() && worker->second->size() == 1 &&
             worker->second->contains(std::to_string(task.index));
    case TaskType::kPs:
      return worker->second->empty() && num_ps == 1;
    default:
      return worker->second->empty() && num_ps == 0;
  }
}

absl::StatusOr<DynamicCluster> DynamicFromJobs(const Jobs& jobs) {
  DynamicCluster dynamic;
  if (const auto it = jobs.find(TaskType::kWorker); it != jobs.end() && it->second->is_object()) {
    MUSTER_ASSIGN_OR_RETURN(dynamic.worker, ReadSparse(TaskType::kWorker, *it->second));
  }
  if (const auto it = jobs.find(TaskType::kPs); it != jobs.end()) {
    MUSTER_ASSIGN_OR_RETURN(dynamic.ps, ReadAddresses(TaskType::kPs, *it->second));
  }
  return dynamic;
}

void WarnOfLoopback(const ClusterSpec& spec, std::vector<std::string>* warnings) {
  std::optional<TaskId> loopback, other;
  for (const TaskId task : spec.Tasks()) {
    auto& slot = IsLoopback(spec.AddressOf(task)) ? loopback : other;
    if (!slot) slot = task;
  }
  if (!loopback || !other) return;
  warnings->push_back(fmt::format(
      "{} is \"{}\", which tasks on other hosts cannot reach, while {} is \"{}\": write the name "
      "of its host",
      Field(loopback->type, loopback->index), spec.AddressOf(*loopback).ToString(),
      Field(other->type, other->index), spec.AddressOf(*other).ToString()));
}

// Returns a misspelt "cluster" key, or "". Without this check, each task would train alone.
std::string MisspeltClusterKey(const Json& json) {
  if (json.contains("cluster")) return "";
  for (const auto& [key, value] : json.items()) {
    if (key != "task" && Nearest(key, {"cluster"}) == "cluster" && value.is_object()) return key;
  }
  return "";
}

// Reads a TF_CONFIG that is a JSON object.
absl::StatusOr<ClusterConfig> ConfigFromJson(const Json& json) {
  static const Json kNoJobs = Json::object();
  ClusterConfig config;
  if (const auto it = json.find("environment"); it != json.end() && it->is_string()) {
    config.environment = it->get<std::string>();
  }
  const auto present = [&json](const char* key) -> const Json* {
    const auto it = json.find(key);
    return it == json.end() || it->is_null() ? nullptr : &*it;
  };
  const Json* task = present("task");
  const Json* cluster = present("cluster");
  // An older Kubeflow training operator writes the cluster of a dynamic job under "sparseCluster".
  const Json* sparse = cluster == nullptr ? present("sparseCluster") : nullptr;
  const Json& source = sparse != nullptr ? *sparse : cluster != nullptr ? *cluster : kNoJobs;
  MUSTER_ASSIGN_OR_RETURN(const Jobs jobs, ReadJobs(source));

  std::optional<TaskId> id;
  if (task != nullptr) {
    MUSTER_ASSIGN_OR_RETURN(id, ReadTask(*task));
  }
  if (id && (sparse != nullptr || IsDynamicForm(jobs, *id))) {
    MUSTER_ASSIGN_OR_RETURN(config.dynamic, DynamicFromJobs(jobs));
    config.task = id;
    config.warnings.push_back(
        "this is Kubeflow's dynamic-worker form, in which each task knows another part of the "
        "cluster and nobody the number of members: training cannot start from it, set "
        "enableDynamicWorker to false in the TFJob");
    return config;
  }
  MUSTER_ASSIGN_OR_RETURN(config.cluster, SpecFromJobs(jobs));
  if (config.cluster.empty()) {
    const std::string misspelt = MisspeltClusterKey(json);
    if (!misspelt.empty()) {
      return ConfigurationError(fmt::format(
          "cluster is missing, but there is {}: write it as \"cluster\"", Shown(misspelt)));
    }
    if (!id) return config;
    if (id->index != 0 || id->type == TaskType::kPs || id->type == TaskType::kEvaluator) {
      return ConfigurationError(
          fmt::format("task is {}, but cluster is missing or empty: list the addresses of all "
                      "tasks in cluster",
                      id->DisplayName()));
    }
    config.warnings.push_back(fmt::format(
        "there is a task ({}) but no cluster: this process trains alone", id->DisplayName()));
    return config;
  }
  if (!id) {
    return ConfigurationError(
        "task is missing: add {\"type\": ..., \"index\": ...} to say which task of the cluster "
        "this process is");
  }
  MUSTER_RETURN_IF_ERROR(CheckTaskInCluster(*id, task->at("index"), config.cluster));
  config.task = id;
  WarnOfLoopback(config.cluster, &config.warnings);
  return config;
}

// Adds a hint for two common mistakes that the parser's message does not explain.
std::string SyntaxHint(std::string_view text) {
  if (text.find("$(") != std::string_view::npos || text.find("${") != std::string_view::npos) {
    return "; a variable in it was not expanded: define that variable before TF_CONFIG";
  }
  if (text.find("{'") != std::string_view::npos) {
    return "; it looks like a Python dict: write strings in double quotes, as json.dumps does";
  }
  return "";
}

}  // namespace

absl::StatusOr<ClusterSpec> SpecFromJson(const Json& json) {
  MUSTER_ASSIGN_OR_RETURN(const Jobs jobs, ReadJobs(json));
  return SpecFromJobs(jobs);
}

absl::StatusOr<ClusterConfig> ParseTfConfig(const std::optional<std::string>& text) {
  if (!text || text->find_first_not_of(" \t\r\n") == std::string::npos) return ClusterConfig{};
  const absl::StatusOr<Json> json = ParseJson(*text, "TF_CONFIG");
  if (!json.ok()) {
    return ConfigurationError(fmt::format("{}{}", Message(json.status()), SyntaxHint(*text)));
  }
  if (!json->is_object()) {
    return ConfigurationError(
        fmt::format("TF_CONFIG is {}, which is no object: write {{\"cluster\": {{...}}, \"task\": "
                    "{{...}}}}",
                    Shown(*json)));
  }
  absl::StatusOr<ClusterConfig> config = ConfigFromJson(*json);
  if (!config.ok()) return Annotate(config.status(), "TF_CONFIG: ");
  return config;
}

}  // namespace muster
