#include "common/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/checkpoint/state/fields.h"

namespace muster::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr int64_t kFormatVersion = 1;

Json NumbersToJson(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(NumberToJson(value));
  return json;
}

const Json& At(const Json& object, const std::string& key) {
  static const Json* const null = new Json;
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it == object.end() ? *null : *it;
}

// Returns the list of names under an optional key, and removes the key from the object.
absl::StatusOr<std::optional<std::vector<std::string>>> TakeNames(const char* key, Json* object) {
  using Names = std::vector<std::string>;
  if (!object->is_object() || !object->contains(key)) return std::optional<Names>();
  const Json names = (*object)[key];
  object->erase(key);
  if (!names.is_array() ||
      !std::all_of(names.begin(), names.end(), [](const Json& name) { return name.is_string(); }))
    return DataError(fmt::format("its field \"{}\" must be a list of names", key));
  return std::optional<Names>(names.get<Names>());
}

// Returns the dotted path of the first difference. An absent key equals null.
std::string Difference(const Json& a, const Json& b, const std::string& path) {
  if (a == b) return "";
  if (!a.is_object() || !b.is_object()) return path;
  for (const Json* side : {&a, &b}) {
    for (const auto& [key, value] : side->items()) {
      std::string difference = Difference(At(a, key), At(b, key), path + "." + key);
      if (!difference.empty()) return difference;
    }
  }
  return "";
}

}  // namespace

Json ToJson(const SavedState& state) {
  Json json = {{"format_version", kFormatVersion},
               {"step", state.step},
               {"epoch", state.epoch},
               {"offset", state.offset},
               {"examples", state.examples},
               {"epoch_loss_sum", NumberToJson(state.epoch_loss_sum)},
               {"epoch_examples", state.epoch_examples},
               {"epoch_metric_sums", NumbersToJson(state.epoch_metric_sums)},
               {"loss_scaler", NumbersToJson(state.loss_scaler)},
               {"validation_due", state.validation_due},
               {"test_due", state.test_due},
               {"global_batch_size", state.global_batch_size},
               {"run_id", state.run_id},
               {"job", state.job},
               {"versions", state.versions}};
  AddExtras(state.extras, &json);
  if (state.frozen) json["frozen"] = *state.frozen;
  if (!state.averaged.empty()) json["averaged"] = state.averaged;
  return json;
}

absl::StatusOr<SavedState> SavedStateFromJson(const Json& json) {
  // Checked first, because the fields depend on the version.
  const Json& said = At(json, "format_version");
  if (said.is_number_integer() && said != kFormatVersion) {
    return DataError(
        fmt::format("its format_version is {}, this Muster reads {}", said.dump(), kFormatVersion));
  }
  SavedState state;
  int64_t version = 0;
  Json fixed = json;
  MUSTER_ASSIGN_OR_RETURN(state.frozen, TakeNames("frozen", &fixed));
  MUSTER_ASSIGN_OR_RETURN(const auto averaged, TakeNames("averaged", &fixed));
  state.averaged = averaged.value_or(std::vector<std::string>());
  MUSTER_ASSIGN_OR_RETURN(state.extras, TakeExtras(&fixed));
  MUSTER_RETURN_IF_ERROR(Fields(fixed)
                             .Read("format_version", &version)
                             .Read("step", &state.step)
                             .Read("epoch", &state.epoch)
                             .Read("offset", &state.offset)
                             .Read("examples", &state.examples)
                             .Read("epoch_loss_sum", &state.epoch_loss_sum)
                             .Read("epoch_examples", &state.epoch_examples)
                             .Read("epoch_metric_sums", &state.epoch_metric_sums)
                             .Read("loss_scaler", &state.loss_scaler)
                             .Read("validation_due", &state.validation_due)
                             .Read("test_due", &state.test_due)
                             .Read("global_batch_size", &state.global_batch_size)
                             .Read("run_id", &state.run_id)
                             .Read("job", &state.job)
                             .Read("versions", &state.versions)
                             .Finish());
  return state;
}

std::string FirstFixedDifference(const Json& of_checkpoint, const Json& of_job) {
  for (const char* key : {"program", "program_args", "optimizer", "global_batch_size",
                          "per_replica_batch_size", "seed"}) {
    std::string difference = Difference(At(of_checkpoint, key), At(of_job, key), key);
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string CheckpointName(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

int64_t StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return -1;
  return CheckpointName(step) == name ? step : -1;
}

}  // namespace muster::checkpoint
