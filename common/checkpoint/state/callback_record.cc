#include "common/checkpoint/state/callback_record.h"

#include <fmt/format.h>

#include "common/checkpoint/state/fields.h"

namespace muster::checkpoint {
namespace {

absl::Status CheckObject(const char* key, const Json& json) {
  if (json.is_object()) return absl::OkStatus();
  return DataError(fmt::format("its field \"{}\" must be an object", key));
}

}  // namespace

Json ToJson(const CallbackRecord& record) {
  Json rates = Json::object();
  for (const auto& [name, rate] : record.rates) rates[name] = NumberToJson(rate);
  Json json = {{"states", record.states.empty() ? Json::object() : Json(record.states)},
               {"rates", std::move(rates)},
               {"kept", record.kept.empty() ? Json::object() : Json(record.kept)},
               {"notes", record.notes.empty() ? Json::object() : Json(record.notes)},
               {"epochs_begun", record.epochs_begun},
               {"epochs_ended", record.epochs_ended},
               {"steps_begun", record.steps_begun},
               {"steps_ended", record.steps_ended},
               {"ended", record.ended},
               {"stop", record.stop},
               {"weights_of", record.weights_of}};
  if (!record.rates_of.empty()) json["rates_of"] = record.rates_of;
  return json;
}

absl::StatusOr<CallbackRecord> CallbackRecordFromJson(const Json& json) {
  CallbackRecord record;
  Json states, rates, kept, notes, rates_of = Json::object();
  Fields fields(json);
  fields.Read("states", &states)
      .Read("rates", &rates)
      .Read("kept", &kept)
      .Read("notes", &notes)
      .Read("epochs_begun", &record.epochs_begun)
      .Read("epochs_ended", &record.epochs_ended)
      .Read("steps_begun", &record.steps_begun)
      .Read("steps_ended", &record.steps_ended)
      .Read("ended", &record.ended)
      .Read("stop", &record.stop)
      .Read("weights_of", &record.weights_of);
  // Older checkpoints have no "rates_of".
  if (json.is_object() && json.contains("rates_of")) fields.Read("rates_of", &rates_of);
  MUSTER_RETURN_IF_ERROR(fields.Finish());
  MUSTER_RETURN_IF_ERROR(CheckObject("states", states));
  MUSTER_RETURN_IF_ERROR(CheckObject("rates", rates));
  MUSTER_RETURN_IF_ERROR(CheckObject("kept", kept));
  MUSTER_RETURN_IF_ERROR(CheckObject("notes", notes));
  MUSTER_RETURN_IF_ERROR(CheckObject("rates_of", rates_of));
  for (const auto& [name, state] : states.items()) record.states[name] = state;
  for (const auto& [name, note] : notes.items()) record.notes[name] = note;
  for (const auto& [name, rate] : rates_of.items()) record.rates_of[name] = rate;
  for (const auto& [name, rate] : rates.items()) {
    if (!NumberFromJson(rate, &record.rates[name]))
      return DataError(fmt::format("its field \"rates.{}\" must be a number", name));
  }
  for (const auto& [name, step] : kept.items()) {
    if (!step.is_number_integer())
      return DataError(fmt::format("its field \"kept.{}\" must be a step", name));
    record.kept[name] = step.get<int64_t>();
  }
  return record;
}

}  // namespace muster::checkpoint
