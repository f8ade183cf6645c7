#include "chief/chief_record.h"

#include <fmt/format.h>

#include <tuple>

namespace muster {
namespace {

std::tuple<uint64_t, int64_t, bool> AgeOf(const ChiefRecord& record) {
  const auto completed = record.work.find("completed");
  const bool number = completed != record.work.end() && completed->is_number_integer();
  return {record.view, number ? completed->get<int64_t>() : 0, record.ended.has_value()};
}

}  // namespace

std::string ToText(const ChiefRecord& record) {
  Json places = Json::array(), workers = Json::array();
  for (const ShardPlacement& shard : record.placements)
    places.push_back(Json::array({shard.primary, shard.backup, shard.in_sync}));
  for (const auto& [index, incarnation] : record.workers)
    workers.push_back(Json::array({index, incarnation}));
  Json json = {{"view", record.view},
               {"placements", std::move(places)},
               {"workers", std::move(workers)},
               {"work", record.work},
               {"validation_due", record.validation_due},
               {"test_due", record.test_due},
               {"epoch_seconds", record.epoch_seconds}};
  if (record.ended) json["ended"] = *record.ended;
  return Dump(json);
}

absl::StatusOr<ChiefRecord> ChiefRecordOf(const std::string& text) {
  ChiefRecord record;
  try {
    const Json json = Json::parse(text);
    record.view = json.at("view");
    for (const Json& place : json.at("placements"))
      record.placements.push_back({place.at(0), place.at(1), place.at(2)});
    for (const Json& worker : json.at("workers"))
      record.workers.emplace_back(worker.at(0), worker.at(1));
    record.work = json.at("work");
    record.validation_due = json.at("validation_due");
    record.test_due = json.at("test_due");
    record.epoch_seconds = json.at("epoch_seconds");
    if (json.contains("ended")) record.ended = json.at("ended").get<std::string>();
  } catch (const std::exception& error) {
    return DataError(fmt::format(
        "the record of the chief before, on the servers, cannot be read: {}", error.what()));
  }
  return record;
}

bool IsNewer(const ChiefRecord& record, const ChiefRecord& other) {
  return AgeOf(record) > AgeOf(other);
}

}  // namespace muster
