#include "common/data/transforms/transform_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/data/transforms/transform_check.h"

namespace muster::data {
namespace {

// ---- The single steps

// Returns false for numbers above int64's range, which nlohmann::json would return as negative
// numbers.
bool IsInt64(const Json& json) {
  return json.is_number_unsigned() ? std::in_range<int64_t>(json.get<uint64_t>())
                                   : json.is_number_integer();
}

// Reads the side of a square, or [height, width].
void ReadSize(JsonObject* object, int64_t* height, int64_t* width) {
  Json size;
  object->Read("size", &size);
  if (IsInt64(size)) {
    *height = *width = size.get<int64_t>();
  } else if (size.is_array() && size.size() == 2 && IsInt64(size[0]) && IsInt64(size[1])) {
    *height = size[0].get<int64_t>();
    *width = size[1].get<int64_t>();
  } else if (size.is_null()) {
    object->Fail("size", "is missing: give a side in pixels, or [height, width]");
  } else {
    object->Fail("size",
                 fmt::format("must be a side in pixels, or [height, width], is {}", size.dump()));
  }
}

// Reads a range of two numbers.
void ReadRange(JsonObject* object, const char* key, std::pair<double, double>* range) {
  std::vector<double> values;
  object->Read(key, &values);
  if (!object->Has(key)) return;
  if (values.size() == 2) {
    *range = {values[0], values[1]};
  } else {
    object->Fail(
        key, fmt::format("must be two numbers, the smaller one first, is {}", Json(values).dump()));
  }
}

// Reads the largest distance of the factor from `centre`, or the least and the largest factor.
void ReadJitter(JsonObject* object, const char* key, double centre,
                std::pair<double, double>* range) {
  Json json;
  object->Read(key, &json);
  if (json.is_null()) return;
  if (!json.is_number()) return ReadRange(object, key, range);
  const double most = json.get<double>();
  if (most < 0) {
    object->Fail(key, fmt::format("must not be below 0, is {}", most));
    return;
  }
  *range = {centre - most, centre + most};
  if (centre > 0) range->first = std::max(range->first, 0.0);
}

Transform ReadResize(JsonObject* object) {
  Resize step;
  Json size;
  object->Read("size", &size);
  ReadSize(object, &step.height, &step.width);
  if (size.is_number()) {
    step.shorter_side = step.height;
    step.height = step.width = 0;
    // A shorter side of 0 would mean that the job gives height and width.
    if (step.shorter_side == 0) object->Fail("size", "must be at least 1 pixel, is 0");
  }
  return step;
}

Transform ReadCenterCrop(JsonObject* object) {
  CenterCrop step;
  ReadSize(object, &step.height, &step.width);
  return step;
}

Transform ReadRandomCrop(JsonObject* object) {
  RandomCrop step;
  ReadSize(object, &step.height, &step.width);
  Json padding;
  object->Read("padding", &padding);
  if (padding.is_null()) return step;
  if (padding.is_number_integer()) padding = Json::array({padding});
  const bool good = padding.is_array() && std::all_of(padding.begin(), padding.end(), IsInt64);
  const size_t count = good ? padding.size() : 0;
  if (count != 1 && count != 2 && count != 4) {
    object->Fail("padding", fmt::format("must be pixels on all sides, [left and right, top and "
                                        "bottom] or [left, top, right, bottom], is {}",
                                        padding.dump()));
    return step;
  }
  for (size_t i = 0; i < 4; ++i) step.padding[i] = padding[i % count].get<int64_t>();
  return step;
}

Transform ReadRandomResizedCrop(JsonObject* object) {
  RandomResizedCrop step;
  ReadSize(object, &step.height, &step.width);
  ReadRange(object, "scale", &step.scale);
  ReadRange(object, "ratio", &step.ratio);
  return step;
}

Transform ReadFlip(JsonObject* object) {
  RandomHorizontalFlip step;
  object->Read("p", &step.p);
  return step;
}

Transform ReadColorJitter(JsonObject* object) {
  ColorJitter step;
  ReadJitter(object, "brightness", 1, &step.brightness);
  ReadJitter(object, "contrast", 1, &step.contrast);
  ReadJitter(object, "saturation", 1, &step.saturation);
  ReadJitter(object, "hue", 0, &step.hue);
  return step;
}

Transform ReadNormalize(JsonObject* object) {
  Normalize step;
  std::pair<double, double> range;
  object->Read("mean", &step.mean).Read("std", &step.std);
  ReadRange(object, "range", &range);
  if (object->Has("range")) {
    if (object->Has("mean") || object->Has("std"))
      object->Fail("range", "goes without mean and std: keep the one or the other");
    const double most = std::max(std::abs(range.first), std::abs(range.second));
    if (range.first == range.second) {
      object->Fail("range", "must be two numbers that differ, such as [-1, 1]");
    } else if (!(most <= 1e6 && std::abs(range.first - range.second) >= 1e-6)) {
      object->Fail("range", fmt::format("must be two numbers from -1e6 to 1e6 that differ by 1e-6 "
                                        "or more, such as [-1, 1], is [{}, {}]",
                                        range.first, range.second));
    }
    return NormalizeTo(range.first, range.second);
  }
  for (const char* key : {"mean", "std"}) {
    if (!object->Has(key))
      object->Fail(key, "is missing: give mean and std, or a range such as [-1, 1]");
  }
  return step;
}

struct KnownStep {
  std::string_view name;
  Transform (*read)(JsonObject* object);
};
constexpr KnownStep kSteps[] = {{"resize", ReadResize},
                                {"center_crop", ReadCenterCrop},
                                {"random_crop", ReadRandomCrop},
                                {"random_resized_crop", ReadRandomResizedCrop},
                                {"random_horizontal_flip", ReadFlip},
                                {"color_jitter", ReadColorJitter},
                                {"normalize", ReadNormalize}};
constexpr std::string_view kMixUp = "mixup";

// ---- The list

MixUpOptions ReadMixUp(JsonObject* object, const DataSplit& split) {
  MixUpOptions mixup;
  object->Read("alpha", &mixup.alpha).Read("classes", &mixup.classes);
  if (!IsMixUpAlpha(mixup.alpha))
    object->Fail("alpha", fmt::format("must be above 0, from 1e-6 to 1e6, is {}", mixup.alpha));
  if (mixup.classes < 1 && object->Has("classes")) {
    object->Fail("classes", fmt::format("must be at least 1, is {}", mixup.classes));
  } else if (mixup.classes < 1 && split.format != "image_folder") {
    object->Fail("classes", "is missing: say how many there are");
  }
  return mixup;
}

std::string PlaceOf(const DataSplit& split, size_t i) {
  return fmt::format("{}.transforms[{}]", split.key, i);
}

absl::Status ReadStep(const Json& entry, size_t i, bool training, DataSplit* split) {
  const std::string place = PlaceOf(*split, i);
  if (!entry.is_object() || !entry.contains("name") || !entry.at("name").is_string()) {
    return ConfigurationError(fmt::format(
        R"({} must be an object with a name, such as {{"name": "random_crop", "size": 224}}, is {})",
        place, Dump(entry)));
  }
  if (split->mixup)
    return ConfigurationError(fmt::format("{} follows mixup, which must be the last", place));
  JsonObject object(entry, place);
  std::string name;
  object.Read("name", &name);
  const auto known = std::find_if(std::begin(kSteps), std::end(kSteps),
                                  [&](const KnownStep& step) { return step.name == name; });
  bool random = name == kMixUp;
  if (random) {
    split->mixup = ReadMixUp(&object, *split);
  } else if (known != std::end(kSteps)) {
    split->transforms.push_back(known->read(&object));
    random = IsRandom(split->transforms.back());
  } else {
    std::vector<std::string> names;
    for (const KnownStep& step : kSteps) names.emplace_back(step.name);
    names.emplace_back(kMixUp);
    object.Fail("name", UnknownName(name, names));
  }
  if (random && !training) {
    return ConfigurationError(
        fmt::format("{} is {}, which draws random numbers and so is for data.train: other splits "
                    "take resize, center_crop and normalize, so that each pass measures the same",
                    place, name));
  }
  return object.Finish();
}

absl::Status Refused(const DataSplit& split, const WrongStep& wrong) {
  return ConfigurationError(fmt::format("{}{}{} {}", PlaceOf(split, wrong.step),
                                        wrong.key.empty() ? "" : ".", wrong.key, wrong.what));
}

// Checks the columns if transforms change the type of their values.
absl::Status CheckColumns(const DataSplit& split) {
  const bool normalized =
      !split.transforms.empty() && std::holds_alternative<Normalize>(split.transforms.back());
  const std::string last = PlaceOf(split, split.transforms.size() - (normalized ? 1 : 0));
  int64_t labels = 0;
  for (const DataColumn& column : split.columns) {
    const bool floating = column.dtype.empty() || column.dtype.find("float") != std::string::npos;
    const bool scaled = column.multiplied != 1 || column.divided != 1;
    if (column.picture && normalized && (scaled || !floating)) {
      return ConfigurationError(fmt::format(
          "{}.{} does not go with normalize ({}), which makes float32 of the range that "
          "it is given: leave one of the two out",
          column.key, scaled ? "scale" : "dtype", last));
    }
    if (column.picture || !split.mixup) continue;
    ++labels;
    if (scaled || !floating || column.shape) {
      return ConfigurationError(fmt::format(
          "{}.{} does not go with mixup, whose labels are float32 [classes]: leave it out",
          column.key,
          scaled         ? "scale"
          : column.shape ? "shape"
                         : "dtype"));
    }
  }
  if (!split.mixup) return absl::OkStatus();
  const std::string place = PlaceOf(split, split.transforms.size());
  if (!normalized) {
    return ConfigurationError(
        fmt::format("{} is mixup, which mixes numbers and not bytes: put normalize before it, such "
                    "as {{\"name\": \"normalize\", \"range\": [0, 1]}}",
                    place));
  }
  if (labels == 1) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("{} is mixup, which needs one column of labels beside the pictures: there are {}",
                  place, labels));
}

}  // namespace

absl::Status ReadTransforms(JsonObject* object, Split which, DataSplit* split) {
  Json list;
  object->Read("transforms", &list);
  if (!object->Has("transforms")) return absl::OkStatus();
  const std::string key = split->key + ".transforms";
  if (!list.is_array()) {
    return ConfigurationError(
        fmt::format(R"({} must be a list such as [{{"name": "random_crop", "size": 224}}], is {})",
                    key, Dump(list)));
  }
  const auto picture = [](const DataColumn& column) { return column.picture; };
  if (std::none_of(split->columns.begin(), split->columns.end(), picture)) {
    const bool encoded = split->format == "tfrecord" || split->format == "tar";
    return ConfigurationError(
        fmt::format("{} is for pictures, and no column of the split is one{}", key,
                    encoded ? ": \"decode\": \"image\" makes a picture of what a column holds"
                            : fmt::format(" (format {})", split->format)));
  }
  for (size_t i = 0; i < list.size(); ++i)
    MUSTER_RETURN_IF_ERROR(ReadStep(list[i], i, which == Split::kTrain, split));
  if (const auto wrong = FindWrongStep(split->transforms)) return Refused(*split, *wrong);
  if (!split->transforms.empty() && split->image.channels == 1) {
    const auto* normalize = std::get_if<Normalize>(&split->transforms.back());
    if (normalize != nullptr && std::max(normalize->mean.size(), normalize->std.size()) > 1) {
      return ConfigurationError(fmt::format("{} has 3 values for pictures of 1 channel: give one",
                                            PlaceOf(*split, split->transforms.size() - 1)));
    }
  }
  PictureSize size = {split->image.height, split->image.width, 0};
  if (const auto wrong = FindTooLarge(split->transforms, &size)) return Refused(*split, *wrong);
  return CheckColumns(*split);
}

}  // namespace muster::data
