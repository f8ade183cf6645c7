#include "deploy/hosts/messages.h"

#include <fmt/format.h>

#include <charconv>

namespace muster::hosts {
namespace {

absl::Status ReadMap(const Json& json, std::map<std::string, std::string>* out) {
  if (!json.is_object()) return ConfigurationError("environment is not an object");
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string())
      return ConfigurationError(fmt::format("environment.{} is not a string", name));
    (*out)[name] = value.get<std::string>();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> PortsFrom(const std::vector<int64_t>& numbers) {
  std::vector<int> ports;
  for (const int64_t port : numbers) {
    if (port < 1 || port > 65535) return ConfigurationError("ports is out of range");
    ports.push_back(static_cast<int>(port));
  }
  return ports;
}

absl::Status CheckTask(int task) {
  return task >= 0 ? absl::OkStatus() : ConfigurationError("task is negative");
}

}  // namespace

Json ToJson(const PrepareRequest& request) {
  return {{"prepare", {{"ports", request.ports}, {"gpus", request.gpus}}}};
}
Json ToJson(const Prepared& prepared) {
  return {{"prepared",
           {{"ports", prepared.ports}, {"gpus", prepared.gpus}, {"error", prepared.error}}}};
}
Json ToJson(const ReserveRequest& request) { return {{"reserve", {{"ports", request.ports}}}}; }
Json ToJson(const StartRequest& request) {
  return {{"start",
           {{"task", request.task},
            {"arguments", request.arguments},
            {"environment", request.environment},
            {"key", request.key},
            {"result", request.result}}}};
}
Json ToJson(const Started& started) {
  return {{"started", {{"task", started.task}, {"pid", started.pid}}}};
}
Json ToJson(const SignalRequest& request) {
  return {{"signal", {{"task", request.task}, {"signal", request.signal}}}};
}
Json ToJson(const SuspendRequest& request) { return {{"suspend", {{"seconds", request.seconds}}}}; }
Json ToJson(const Ended& ended) {
  return {{"ended",
           {{"task", ended.task},
            {"code", ended.report.code},
            {"signal", ended.report.signal},
            {"result", ended.result}}}};
}
Json Ping() { return {{"ping", Json::object()}}; }

absl::StatusOr<PrepareRequest> PrepareRequestFrom(const Json& json) {
  PrepareRequest request;
  JsonObject object(json, "prepare");
  object.Read("ports", &request.ports).Read("gpus", &request.gpus);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  return request;
}

absl::StatusOr<Prepared> PreparedFrom(const Json& json) {
  Prepared prepared;
  std::vector<int64_t> ports;
  JsonObject object(json, "prepared");
  object.Read("ports", &ports).Read("gpus", &prepared.gpus).Read("error", &prepared.error);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_ASSIGN_OR_RETURN(prepared.ports, PortsFrom(ports));
  return prepared;
}

absl::StatusOr<ReserveRequest> ReserveRequestFrom(const Json& json) {
  ReserveRequest request;
  std::vector<int64_t> ports;
  JsonObject object(json, "reserve");
  object.Read("ports", &ports);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_ASSIGN_OR_RETURN(request.ports, PortsFrom(ports));
  return request;
}

absl::StatusOr<StartRequest> StartRequestFrom(const Json& json) {
  StartRequest request;
  Json environment = Json::object();
  JsonObject object(json, "start");
  object.Read("task", &request.task)
      .Read("arguments", &request.arguments)
      .Read("environment", &environment)
      .Read("key", &request.key)
      .Read("result", &request.result);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_RETURN_IF_ERROR(CheckTask(request.task));
  MUSTER_RETURN_IF_ERROR(ReadMap(environment, &request.environment));
  if (request.arguments.empty()) return ConfigurationError("start names no program");
  return request;
}

absl::StatusOr<Started> StartedFrom(const Json& json) {
  Started started;
  JsonObject object(json, "started");
  object.Read("task", &started.task).Read("pid", &started.pid);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_RETURN_IF_ERROR(CheckTask(started.task));
  return started;
}

absl::StatusOr<SignalRequest> SignalRequestFrom(const Json& json) {
  SignalRequest request;
  JsonObject object(json, "signal");
  object.Read("task", &request.task).Read("signal", &request.signal);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_RETURN_IF_ERROR(CheckTask(request.task));
  return request;
}

absl::StatusOr<SuspendRequest> SuspendRequestFrom(const Json& json) {
  SuspendRequest request;
  JsonObject object(json, "suspend");
  object.Read("seconds", &request.seconds);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  if (request.seconds < 0) return ConfigurationError("suspend.seconds is negative");
  return request;
}

absl::StatusOr<Ended> EndedFrom(const Json& json) {
  Ended ended;
  JsonObject object(json, "ended");
  object.Read("task", &ended.task)
      .Read("code", &ended.report.code)
      .Read("signal", &ended.report.signal)
      .Read("result", &ended.result);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  MUSTER_RETURN_IF_ERROR(CheckTask(ended.task));
  return ended;
}

void AppendTaskLine(const TaskLine& line, std::string* out) {
  *out += fmt::format("{}{} {}\n", line.kind, line.task, line.text);
}

std::optional<TaskLine> ParseTaskLine(std::string_view line) {
  TaskLine parsed;
  if (line.empty() || std::string_view("oep").find(line.front()) == std::string_view::npos)
    return std::nullopt;
  parsed.kind = line.front();
  const char* end = line.data() + line.size();
  const auto [at, error] = std::from_chars(line.data() + 1, end, parsed.task);
  if (error != std::errc() || at == end || *at != ' ') return std::nullopt;
  parsed.text = line.substr(static_cast<size_t>(at - line.data()) + 1);
  return parsed;
}

}  // namespace muster::hosts
