#include "chief/leases/chief_record.h"

#include <fmt/format.h>

#include <charconv>
#include <tuple>

#include "common/base/json/json_integer.h"

namespace muster::chief {
namespace {

int64_t NumberOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// Orders records. It includes the hooks that callbacks ran, because they run between two steps: at
// the end of an epoch, the start of the next, and the end of training.
using Age = std::tuple<uint64_t, int64_t, int64_t, int64_t, bool, bool>;
Age AgeOf(const ChiefRecord& record) {
  const auto ended = record.callbacks.find("ended");
  return {record.view,
          NumberOf(record.work, "completed"),
          NumberOf(record.callbacks, "epochs_ended"),
          NumberOf(record.callbacks, "epochs_begun"),
          ended != record.callbacks.end() && *ended == true,
          record.ended.has_value()};
}

// Uses two digits per byte, so that any bytes become valid text.
std::string ToHex(const std::string& bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

absl::StatusOr<std::string> FromHex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned char byte = 0;
    const char* const end = text.data() + i + 2;
    const auto [read, error] = std::from_chars(text.data() + i, end, byte, 16);
    if (error != std::errc() || read != end) return DataError("it is not hexadecimal");
    bytes.push_back(static_cast<char>(byte));
  }
  if (text.size() % 2 != 0) return DataError("it has half a byte");
  return bytes;
}

}  // namespace

std::string ToText(const ChiefRecord& record) {
  Json places = Json::array(), workers = Json::array(), awaited = Json::array();
  for (const ShardPlacement& shard : record.placements)
    places.push_back(Json::array({shard.primary, shard.backup, shard.in_sync}));
  for (const Holders& holders : record.awaited) {
    Json& of_shard = awaited.emplace_back(Json::array());
    for (const auto& [task, incarnation] : holders)
      of_shard.push_back(Json::array({task, incarnation}));
  }
  for (const auto& [index, incarnation] : record.workers)
    workers.push_back(Json::array({index, incarnation}));
  Json json = {{"view", record.view},           {"placements", std::move(places)},
               {"awaited", std::move(awaited)}, {"workers", std::move(workers)},
               {"work", record.work},           {"validation_due", record.validation_due},
               {"test_due", record.test_due},   {"epoch_seconds", record.epoch_seconds}};
  if (record.ended) json["ended"] = *record.ended;
  if (!record.callbacks.is_null()) json["callbacks"] = record.callbacks;
  if (record.integers) {
    Json& integers = json["integers"] = Json::object();
    for (const auto& [name, value] : *record.integers) integers[name] = ToHex(value);
  }
  return Dump(json);
}

absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text) {
  ChiefRecord record;
  MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the chief's record"));
  try {
    record.view = JsonInteger(json.at("view"));
    for (const Json& place : json.at("placements"))
      record.placements.push_back(
          {JsonInteger(place.at(0)), JsonInteger(place.at(1)), place.at(2)});
    for (const Json& of_shard : json.value("awaited", Json::array())) {
      Holders& holders = record.awaited.emplace_back();
      for (const Json& holder : of_shard)
        holders[JsonInteger(holder.at(0))] = JsonInteger(holder.at(1));
    }
    for (const Json& worker : json.at("workers"))
      record.workers.push_back({JsonInteger(worker.at(0)), JsonInteger(worker.at(1))});
    record.work = json.at("work");
    record.validation_due = json.at("validation_due");
    record.test_due = json.at("test_due");
    record.epoch_seconds = json.at("epoch_seconds");
    if (json.contains("ended")) record.ended = json.at("ended").get<std::string>();
    if (json.contains("callbacks")) record.callbacks = json.at("callbacks");
    if (json.contains("integers")) {
      record.integers.emplace();
      for (const auto& [name, value] : json.at("integers").items()) {
        auto bytes = FromHex(value.get<std::string>());
        if (!bytes.ok())
          return DataError(
              fmt::format("the record of the chief before, on the servers, cannot be "
                          "read: {}: {}",
                          name, Message(bytes.status())));
        (*record.integers)[name] = *std::move(bytes);
      }
    }
  } catch (const std::exception& error) {
    return DataError(fmt::format(
        "the record of the chief before, on the servers, cannot be read: {}", error.what()));
  }
  return record;
}

bool IsNewer(const ChiefRecord& record, const ChiefRecord& other) {
  return AgeOf(record) > AgeOf(other);
}

}  // namespace muster::chief
