#include "common/flight/flight_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/base/json/json_integer.h"
#include "muster/json.h"

namespace muster {
namespace {

constexpr char kFormat[] = "muster flight record";
constexpr int kVersion = 1;

// Rounds to microseconds, so that the text is the same on every machine.
double Rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

bool IsCollective(FlightKind kind) {
  return kind == FlightKind::kCollectiveStart || kind == FlightKind::kCollectiveEnd ||
         kind == FlightKind::kCollectiveFailed;
}

nlohmann::ordered_json ToJson(const FlightEvent& event, double to_wall) {
  const double at = Seconds(event.at.time_since_epoch());
  nlohmann::ordered_json json = {{"t", Rounded(at)},
                                 {"wall", Rounded(at + to_wall)},
                                 {"kind", kFlightKindNames[static_cast<int>(event.kind)]},
                                 {"generation", GenerationText(event.generation)},
                                 {"step", event.step},
                                 {"phase", PhaseName(event.phase)}};
  if (IsCollective(event.kind)) {
    json["sequence"] = event.call.sequence;
    json["operation"] = event.call.Text();
    json["bytes"] = event.call.bytes;
    json["replica"] = event.call.replica;
  }
  if (!event.Detail().empty()) json["detail"] = event.Detail();
  return json;
}

template <typename T>
bool ParseWhole(std::string_view text, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// Parses a generation such as "1.2". `separator` replaces the dot.
uint64_t ParseGeneration(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  uint32_t epoch = 0, counter = 0;
  if (at == std::string_view::npos || !ParseWhole(text.substr(0, at), &epoch) ||
      !ParseWhole(text.substr(at + 1), &counter))
    return 0;
  return (static_cast<uint64_t>(epoch) << 32) | counter;
}

template <size_t n>
int IndexOf(const std::string_view (&names)[n], std::string_view name) {
  const auto at = std::find(std::begin(names), std::end(names), name);
  return at == std::end(names) ? -1 : static_cast<int>(at - std::begin(names));
}

// Reads an event. Throws nlohmann's exceptions if required fields are missing or invalid.
RecordedEvent EventFromJson(const Json& json) {
  RecordedEvent event;
  event.monotonic = json.at("t").get<double>();
  event.wall = json.at("wall").get<double>();
  const int kind = IndexOf(kFlightKindNames, json.at("kind").get<std::string>());
  const int phase = IndexOf(kPhaseNames, json.at("phase").get<std::string>());
  if (kind < 0 || phase < 0) throw std::runtime_error("an unknown kind of event");
  event.kind = static_cast<FlightKind>(kind);
  event.phase = static_cast<Phase>(phase);
  event.generation = ParseGeneration(json.at("generation").get<std::string>(), '.');
  event.step = JsonInteger(json.at("step"));
  event.sequence = JsonIntegerOr(json, "sequence", uint64_t{0});
  event.replica = JsonIntegerOr(json, "replica", 0);
  event.bytes = JsonIntegerOr(json, "bytes", int64_t{0});
  event.operation = json.value("operation", "");
  event.detail = json.value("detail", "");
  return event;
}

FlightRecord RecordFromJson(const Json& json) {
  FlightRecord record;
  FlightHeader& header = record.header;
  header.task = json.at("task").get<std::string>();
  header.host = json.at("host").get<std::string>();
  header.pid = JsonInteger(json.at("pid"));
  header.run_id = json.at("run_id").get<std::string>();
  header.generation = ParseGeneration(json.at("generation").get<std::string>(), '.');
  header.members = json.at("members").get<std::vector<std::string>>();
  header.reason = json.at("reason").get<std::string>();
  record.written_monotonic = json.at("t").get<double>();
  record.written_wall = json.at("wall").get<double>();
  record.lost_events = JsonInteger(json.at("lost_events"));
  for (const Json& event : json.at("events")) record.events.push_back(EventFromJson(event));
  return record;
}

}  // namespace

std::string FlightText(const FlightHeader& header, const std::vector<FlightEvent>& events,
                       uint64_t recorded) {
  const double now = Seconds(Clock::now().time_since_epoch());
  const double to_wall = WallSeconds() - now;
  const nlohmann::ordered_json head = {
      {"format", kFormat},
      {"version", kVersion},
      {"task", header.task},
      {"host", header.host},
      {"pid", header.pid},
      {"run_id", header.run_id},
      {"generation", GenerationText(header.generation)},
      {"members", header.members},
      {"reason", header.reason},
      {"t", Rounded(now)},
      {"wall", Rounded(now + to_wall)},
      {"lost_events", recorded - std::min<uint64_t>(recorded, events.size())}};
  std::string text = Dump(head);
  text.pop_back();  // Removes the closing brace.
  text += ",\n\"events\": [";
  for (size_t i = 0; i < events.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + Dump(ToJson(events[i], to_wall));
  return text + "\n]}\n";
}

absl::StatusOr<FlightRecord> ParseFlightRecord(std::string_view text, std::string_view origin) {
  const absl::StatusOr<Json> parsed = ParseJson(text, origin);
  if (!parsed.ok())
    return DataError(fmt::format("{} is damaged: it is not a complete JSON object", origin));
  const Json& json = *parsed;
  if (!json.is_object() || !json.contains("format") || json.at("format") != kFormat)
    return DataError(fmt::format("{} is not a flight record", origin));
  try {
    if (int{JsonInteger(json.at("version"))} != kVersion)
      return DataError(
          fmt::format("{} is a flight record of another version ({}; this one reads {})", origin,
                      json.at("version").dump(), kVersion));
    return RecordFromJson(json);
  } catch (const std::exception& error) {
    return DataError(fmt::format("{} is damaged: {}", origin, error.what()));
  }
}

std::string FlightFolder(uint64_t generation) {
  return fmt::format("{:04}-{:06}", generation >> 32, generation & 0xffffffff);
}

uint64_t GenerationOfFolder(std::string_view name) {
  const uint64_t generation = ParseGeneration(name, '-');
  return FlightFolder(generation) == name ? generation : 0;
}

std::string FlightFile(std::string_view task) {
  std::string name(task);
  std::replace(name.begin(), name.end(), ':', '-');
  return name + ".json";
}

}  // namespace muster
