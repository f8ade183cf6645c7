#include "deploy/preflight/facts.h"

#include "common/base/peer_text.h"
#include "common/cluster/task.h"

namespace muster::preflight {
namespace {

constexpr size_t kMaxChecks = 20'000, kMaxVersions = 20;

void Sanitize(std::string* text) { *text = SanitizePeerText(*text, 500); }

}  // namespace

Json ToJson(const std::vector<Check>& checks) {
  Json list = Json::array();
  for (const Check& check : checks)
    list.push_back({{"name", check.name},
                    {"ok", check.ok},
                    {"warning", check.warning},
                    {"what", check.what},
                    {"fix", check.fix},
                    {"configuration", check.configuration}});
  return list;
}

absl::StatusOr<std::vector<Check>> ChecksFromJson(const Json& json) {
  if (!json.is_array() || json.size() > kMaxChecks) return PeerLost("its checks are not a list");
  std::vector<Check> checks;
  for (const Json& item : json) {
    Check check;
    JsonObject object(item, "checks");
    object.Read("name", &check.name)
        .Read("ok", &check.ok)
        .Read("warning", &check.warning)
        .Read("what", &check.what)
        .Read("fix", &check.fix)
        .Read("configuration", &check.configuration);
    MUSTER_RETURN_IF_ERROR(object.Finish());
    for (std::string* text : {&check.name, &check.what, &check.fix}) Sanitize(text);
    checks.push_back(std::move(check));
  }
  return checks;
}

Json ToJson(const Facts& facts) {
  return {{"task", facts.task},
          {"host", facts.host},
          {"host_id", facts.host_id},
          {"job", facts.job},
          {"versions", facts.versions},
          {"data_address", facts.data_address},
          {"checks", ToJson(facts.checks)}};
}

absl::StatusOr<Facts> FactsFromJson(const Json& json) {
  Facts facts;
  Json versions = Json::object(), checks = Json::array();
  JsonObject object(json, "facts");
  object.Read("task", &facts.task)
      .Read("host", &facts.host)
      .Read("host_id", &facts.host_id)
      .Read("job", &facts.job)
      .Read("versions", &versions)
      .Read("data_address", &facts.data_address)
      .Read("checks", &checks);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  if (!versions.is_object() || versions.size() > kMaxVersions)
    return PeerLost("its versions are not an object");
  for (const auto& [name, version] : versions.items())
    if (version.is_string())
      facts.versions[SanitizePeerText(name, 50)] =
          SanitizePeerText(version.get<std::string>(), 100);
  for (std::string* text : {&facts.task, &facts.host, &facts.host_id, &facts.data_address})
    Sanitize(text);
  MUSTER_ASSIGN_OR_RETURN(facts.checks, ChecksFromJson(checks));
  return facts;
}

Json ToJson(const PathFacts& path) {
  return {{"from", path.from},
          {"to", path.to},
          {"problem", path.problem},
          {"own_mtu", path.own_mtu},
          {"mtu", path.mtu},
          {"told_mtu", path.reported_mtu},
          {"bits_per_second", path.bits_per_second},
          {"round_trip", path.round_trip}};
}

absl::StatusOr<PathFacts> PathFactsFromJson(const Json& json) {
  PathFacts path;
  JsonObject object(json, "path");
  object.Read("from", &path.from)
      .Read("to", &path.to)
      .Read("problem", &path.problem)
      .Read("own_mtu", &path.own_mtu)
      .Read("mtu", &path.mtu)
      .Read("told_mtu", &path.reported_mtu)
      .Read("bits_per_second", &path.bits_per_second)
      .Read("round_trip", &path.round_trip);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  for (std::string* text : {&path.from, &path.to, &path.problem}) Sanitize(text);
  if (!ParseTaskId(path.from) || !ParseTaskId(path.to)) return PeerLost("it names no path");
  return path;
}

}  // namespace muster::preflight
