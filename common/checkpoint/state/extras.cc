#include "common/checkpoint/state/extras.h"

#include <fmt/format.h>

#include <functional>

#include "common/checkpoint/state/fields.h"

namespace muster::checkpoint {
namespace {

Json PlaceToJson(const DataPlace& place) {
  Json json = {{"epoch", place.epoch}, {"offset", place.offset}};
  if (place.over) json["over"] = true;
  return json;
}

absl::StatusOr<DataPlace> PlaceFromJson(const Json& json) {
  DataPlace place;
  Fields fields(json);
  fields.Read("epoch", &place.epoch).Read("offset", &place.offset);
  if (json.is_object() && json.contains("over")) fields.Read("over", &place.over);
  MUSTER_RETURN_IF_ERROR(fields.Finish());
  return place;
}

absl::StatusOr<ReportedSum> SumFromJson(const Json& json) {
  ReportedSum sum;
  if (!json.is_array() || json.size() != 2 || !NumberFromJson(json[0], &sum.sum) ||
      !NumberFromJson(json[1], &sum.weight))
    return DataError("it is no sum and weight");
  return sum;
}

// Returns the values of the object under a key, by name. Returns an empty map if the key is absent.
template <typename Value>
absl::Status TakeNamed(const char* key, Json* json,
                       const std::function<absl::StatusOr<Value>(const Json&)>& read,
                       std::map<std::string, Value>* out) {
  const auto it = json->find(key);
  if (it == json->end()) return absl::OkStatus();
  if (!it->is_object()) return DataError(fmt::format("its field \"{}\" must be an object", key));
  for (const auto& [name, value] : it->items()) {
    absl::StatusOr<Value> one = read(value);
    if (!one.ok()) return Annotate(one.status(), fmt::format("its field \"{}.{}\": ", key, name));
    (*out)[name] = *std::move(one);
  }
  json->erase(it);
  return absl::OkStatus();
}

}  // namespace

void AddExtras(const Extras& extras, Json* json) {
  for (const auto& [name, value] : extras.epoch_values)
    (*json)["epoch_values"][name] =
        Json::array({NumberToJson(value.sum), NumberToJson(value.weight)});
  for (const auto& [name, place] : extras.datasets) (*json)["datasets"][name] = PlaceToJson(place);
  if (extras.stream) (*json)["stream"] = PlaceToJson(*extras.stream);
  if (extras.batch_steps > 0)
    (*json)["batch_steps"] = {{"of", extras.batch_steps}, {"done", extras.batch_steps_done}};
  if (extras.replicas > 0) (*json)["replicas"] = extras.replicas;
  if (extras.finished) (*json)["finished"] = true;
  if (extras.skipped.total > 0)
    (*json)["skipped_steps"] = {{"total", extras.skipped.total},
                                {"in_a_row", extras.skipped.in_a_row}};
  if (extras.callbacks) (*json)["callbacks"] = ToJson(*extras.callbacks);
}

absl::StatusOr<Extras> TakeExtras(Json* json) {
  Extras extras;
  if (!json->is_object()) return extras;
  MUSTER_RETURN_IF_ERROR(
      TakeNamed<ReportedSum>("epoch_values", json, SumFromJson, &extras.epoch_values));
  MUSTER_RETURN_IF_ERROR(TakeNamed<DataPlace>("datasets", json, PlaceFromJson, &extras.datasets));
  if (const auto it = json->find("stream"); it != json->end()) {
    auto place = PlaceFromJson(*it);
    if (!place.ok()) return Annotate(place.status(), "its field \"stream\": ");
    extras.stream = *place;
    json->erase(it);
  }
  if (const auto it = json->find("batch_steps"); it != json->end()) {
    const absl::Status read =
        Fields(*it).Read("of", &extras.batch_steps).Read("done", &extras.batch_steps_done).Finish();
    if (!read.ok()) return Annotate(read, "its field \"batch_steps\": ");
    json->erase(it);
  }
  if (const auto it = json->find("replicas"); it != json->end()) {
    if (!it->is_number_integer() || *it < 1)
      return DataError("its field \"replicas\" must be an integer above 0");
    extras.replicas = it->get<int64_t>();
    json->erase(it);
  }
  if (const auto it = json->find("finished"); it != json->end()) {
    if (!it->is_boolean()) return DataError("its field \"finished\" must be true or false");
    extras.finished = it->get<bool>();
    json->erase(it);
  }
  if (const auto it = json->find("skipped_steps"); it != json->end()) {
    const absl::Status read = Fields(*it)
                                  .Read("total", &extras.skipped.total)
                                  .Read("in_a_row", &extras.skipped.in_a_row)
                                  .Finish();
    if (!read.ok()) return Annotate(read, "its field \"skipped_steps\": ");
    json->erase(it);
  }
  if (const auto it = json->find("callbacks"); it != json->end()) {
    auto record = CallbackRecordFromJson(*it);
    if (!record.ok()) return Annotate(record.status(), "its field \"callbacks\": ");
    extras.callbacks = *std::move(record);
    json->erase(it);
  }
  return extras;
}

}  // namespace muster::checkpoint
