#include "common/data/job/job_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/data/job/hashed_column.h"
#include "common/data/transforms/transform_keys.h"

namespace muster::data {
namespace {

constexpr const char* kSplits[] = {"train", "validation", "test"};
const std::vector<std::string> kDtypes = {"float16", "bfloat16", "float32", "float64", "int8",
                                          "int16",   "int32",    "int64",   "uint8",   "bool"};

// Parses a ratio such as "1/255".
bool ReadRatio(const std::string& text, double* multiplied, double* divided) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  const auto read = [](std::string_view number, double* out) {
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *out);
    return error == std::errc() && end == number.data() + number.size();
  };
  return read(std::string_view(text).substr(0, slash), multiplied) &&
         read(std::string_view(text).substr(slash + 1), divided);
}

void ReadScale(JsonObject* object, DataColumn* column) {
  Json scale;
  object->Read("scale", &scale);
  if (scale.is_null()) return;
  bool good = scale.is_number();
  if (good) column->multiplied = scale.get<double>();
  if (scale.is_string()) {
    good = ReadRatio(scale.get_ref<const std::string&>(), &column->multiplied, &column->divided);
  }
  good = good && std::isfinite(column->multiplied) && std::isfinite(column->divided) &&
         column->multiplied != 0 && column->divided != 0;
  if (!good) {
    object->Fail("scale", fmt::format("must be a number other than 0, or a ratio such as "
                                      "\"1/255\", is {}",
                                      scale.dump()));
  } else if (!column->dtype.empty() && column->dtype.find("float") == std::string::npos) {
    object->Fail("scale", fmt::format("makes fractions, which dtype {} does not hold: leave one of "
                                      "the two out, or set dtype to float32",
                                      column->dtype));
  }
}

void ReadShape(JsonObject* object, DataColumn* column) {
  std::vector<int64_t> shape;
  object->Read("shape", &shape);
  if (!object->Has("shape")) return;
  const bool good = std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d >= -1; }) &&
                    std::count(shape.begin(), shape.end(), -1) <= 1;
  if (!good) {
    object->Fail("shape", fmt::format("must be the dimensions of one example, at most one of them "
                                      "-1, is {}",
                                      Json(shape).dump()));
  }
  column->shape = std::move(shape);
}

std::string ExampleOf(DataFormat::Source source) {
  return source == DataFormat::Source::kPath
             ? "a file's path, or an object such as {\"path\": \"x.npy\", \"dtype\": "
               "\"float32\", \"scale\": \"1/255\"}"
             : "a name in the split's files, or an object such as {\"from\": \"x\", \"dtype\": "
               "\"float32\", \"scale\": \"1/255\"}";
}

// Reads a name, or a list of names. A number counts as a name.
bool ReadSource(const Json& json, DataFormat::Source source, DataColumn* column) {
  if (json.is_string()) {
    column->source = json.get<std::string>();
    return true;
  }
  if (source != DataFormat::Source::kParts) return false;
  if (json.is_number_unsigned()) {
    column->source = json.dump();
    return true;
  }
  if (!json.is_array() || json.empty()) return false;
  for (const Json& part : json) {
    if (!part.is_string() && !part.is_number_unsigned()) return false;
    column->parts.push_back(part.is_string() ? part.get<std::string>() : part.dump());
  }
  column->source = fmt::format("{}", fmt::join(column->parts, ", "));
  return true;
}

// Reads "hash", which converts text to keys of embedding tables.
void ReadHash(JsonObject* object, DataColumn* column) {
  std::string name;
  object->Read("hash", &name);
  if (!object->Has("hash")) return;
  std::vector<std::string> names;
  for (const auto& [known, hash] : kKeyHashes) names.emplace_back(known);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    object->Fail("hash", UnknownName(name, names));
  } else if (!column->dtype.empty() && column->dtype != "int64") {
    object->Fail("hash", fmt::format("makes keys of 64 bits, which dtype {} does not hold: leave "
                                     "dtype out",
                                     column->dtype));
  } else if (object->Has("scale")) {
    object->Fail("hash", "makes keys, which have no scale: leave one of the two out");
  }
  column->decode = std::string(kHashed) + name;
}

// Reads a column. `json` is the source, or an object with the source and the conversion of values.
absl::Status ReadColumn(const Json& json, DataFormat::Source source, DataColumn* column) {
  if (!json.is_object() && !ReadSource(json, source, column)) {
    return ConfigurationError(
        fmt::format("{} must be {}, is {}", column->key, ExampleOf(source), json.dump()));
  }
  if (json.is_object()) {
    JsonObject object(json, column->key);
    Json from;
    const char* key = source == DataFormat::Source::kPath ? "path" : "from";
    object.Read(key, &from).Read("dtype", &column->dtype);
    if (!from.is_null() && !ReadSource(from, source, column))
      object.Fail(key, fmt::format("must be a name, is {}", from.dump()));
    if (source != DataFormat::Source::kPath) object.Read("decode", &column->decode);
    if (!column->dtype.empty() &&
        std::find(kDtypes.begin(), kDtypes.end(), column->dtype) == kDtypes.end()) {
      object.Fail("dtype", UnknownName(column->dtype, kDtypes));
    }
    ReadScale(&object, column);
    if (source == DataFormat::Source::kParts) ReadHash(&object, column);
    ReadShape(&object, column);
    MUSTER_RETURN_IF_ERROR(object.Finish());
  }
  if (column->source.empty() && source == DataFormat::Source::kPath) {
    return ConfigurationError(fmt::format("{} names no file: give its path", column->key));
  }
  return absl::OkStatus();
}

// Returns the names in "columns", in the order of "order" if the job has it.
absl::StatusOr<std::vector<std::string>> OrderOf(const Json& columns, const Json& order,
                                                 const std::string& key) {
  if (!columns.is_object() || columns.empty()) {
    return ConfigurationError(fmt::format("{}.columns must be an object from names to files, is {}",
                                          key, columns.dump()));
  }
  std::vector<std::string> names;
  for (const auto& [name, column] : columns.items()) {
    if (!column.is_null()) names.push_back(name);
  }
  if (order.is_null() && names.size() <= 1) return names;
  std::vector<std::string> ordered;
  if (order.is_array() &&
      std::all_of(order.begin(), order.end(), [](const Json& name) { return name.is_string(); })) {
    ordered = order.get<std::vector<std::string>>();
  }
  std::vector<std::string> sorted = ordered;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != names) {
    return ConfigurationError(fmt::format("{}.order must name each of the columns {} once, is {}",
                                          key, fmt::join(names, ", "), order.dump()));
  }
  return ordered;
}

absl::Status ReadColumns(JsonObject* object, const Json& json, DataFormat::Source source,
                         DataSplit* split) {
  Json columns, order;
  object->Read("columns", &columns).Read("order", &order);
  std::vector<std::pair<std::string, const Json*>> found;
  for (const char* name : {"x", "y"}) {
    Json ignored;
    object->Read(name, &ignored);
    if (object->Has(name)) found.emplace_back(name, &json.at(name));
  }
  if (!found.empty() && !columns.is_null()) {
    return ConfigurationError(fmt::format("{} has both {} and columns: name all of them in columns",
                                          split->key, found[0].first));
  }
  if (columns.is_null() && !order.is_null()) {
    return ConfigurationError(
        fmt::format("{}.order is for columns, and there are none", split->key));
  }
  if (!columns.is_null()) {
    MUSTER_ASSIGN_OR_RETURN(const auto names, OrderOf(columns, order, split->key));
    for (const std::string& name : names) found.emplace_back(name, &json.at("columns").at(name));
  }
  for (const auto& [name, value] : found) {
    DataColumn column;
    column.name = name;
    column.key = fmt::format("{}.{}{}", split->key, columns.is_null() ? "" : "columns.", name);
    MUSTER_RETURN_IF_ERROR(ReadColumn(*value, source, &column));
    split->columns.push_back(std::move(column));
  }
  return absl::OkStatus();
}

void ReadPart(JsonObject* object, DataSplit* split) {
  object->Read("skip", &split->skip);
  if (split->skip < 0) object->Fail("skip", fmt::format("must be at least 0, is {}", split->skip));
  int64_t take = 1;
  object->Read("take", &take);
  if (take < 1) object->Fail("take", fmt::format("must be at least 1, is {}", take));
  if (object->Has("take")) split->take = take;
  std::vector<double> part;
  object->Read("fraction", &part);
  if (!object->Has("fraction")) return;
  if (part.size() != 2 || !(part[0] >= 0 && part[0] < part[1] && part[1] <= 1)) {
    object->Fail("fraction", fmt::format("must be two numbers from 0 to 1, where the part begins "
                                         "and where it ends, such as [0.9, 1], is {}",
                                         Json(part).dump()));
    return;
  }
  if (split->skip > 0 || split->take) {
    object->Fail("fraction", "goes without skip and take: keep the one or the other");
  }
  split->fraction = {part[0], part[1]};
}

// Reads "memory", or {"disk": a folder}.
void ReadCache(JsonObject* object, DataSplit* split) {
  Json cache;
  object->Read("cache", &cache);
  const bool disk = cache.is_object() && cache.size() == 1 && cache.contains("disk") &&
                    cache["disk"].is_string() && cache["disk"] != "";
  if (cache == "memory") {
    split->cache.kind = CacheOptions::Kind::kMemory;
  } else if (disk) {
    split->cache = {CacheOptions::Kind::kDisk, cache["disk"].get<std::string>()};
  } else if (!cache.is_null()) {
    object->Fail("cache",
                 fmt::format("must be \"memory\", or {{\"disk\": a folder}}, is {}", cache.dump()));
  }
}

// Reads "auto", or a number that is at least `least`.
std::optional<int> ReadAutoOr(JsonObject* object, const char* key, int least, const char* what) {
  Json value;
  object->Read(key, &value);
  constexpr int kMax = 1024;
  if (value.is_null() || value == "auto") return std::nullopt;
  if (value.is_number_integer() && value >= least && value <= kMax) return value.get<int>();
  object->Fail(key, fmt::format("must be \"auto\" or a number of {} from {} to {}, is {}", what,
                                least, kMax, value.dump()));
  return std::nullopt;
}

DataOptions ReadOptions(JsonObject* object) {
  DataOptions options;
  options.threads = ReadAutoOr(object, "threads", 1, "threads");
  options.prefetch = ReadAutoOr(object, "prefetch", 0, "batches");
  std::string on_error = "fail", auto_shard = "data";
  object->Read("on_error", &on_error).Read("auto_shard", &auto_shard);
  options.skip_damaged = on_error == "skip";
  if (!options.skip_damaged && on_error != "fail")
    object->Fail("on_error", UnknownName(on_error, {"fail", "skip"}));
  const std::vector<std::string> shards(std::begin(kAutoShardNames), std::end(kAutoShardNames));
  const auto found = std::find(shards.begin(), shards.end(), auto_shard);
  if (found == shards.end()) {
    object->Fail("auto_shard", UnknownName(auto_shard, shards));
  } else {
    options.auto_shard = static_cast<AutoShard>(found - shards.begin());
  }
  return options;
}

// Checks the training split for auto_shard "file".
absl::Status CheckFiles(const DataSplit& split) {
  if (split.kind == DataSplit::Kind::kFiles && ShardsByFile(split.format)) {
    if (split.skip == 0 && !split.take && !split.fraction) return absl::OkStatus();
    return ConfigurationError(
        fmt::format("data.auto_shard is \"file\", and {} takes a part of its examples, which is "
                    "counted over all "
                    "files: leave out skip, take and fraction, or use \"data\"",
                    split.key));
  }
  return ConfigurationError(fmt::format(
      "data.auto_shard is \"file\", which is for tfrecord and tar files, and data.train is {}: use "
      "\"data\"",
      split.kind == DataSplit::Kind::kFiles ? split.format : "the program's own"));
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const DataFormat& format : DataFormats()) names.emplace_back(format.name);
  return names;
}

absl::Status ReadSplit(const Json& json, Split which, DataSplit* split) {
  if (json == "program") {
    split->kind = DataSplit::Kind::kProgram;
    return absl::OkStatus();
  }
  if (!json.is_object()) {
    return ConfigurationError(
        fmt::format("{} must be an object such as {{\"format\": \"npy\", \"x\": \"x.npy\", "
                    "\"y\": \"y.npy\"}}, or \"program\", is {}",
                    split->key, json.dump()));
  }
  split->kind = DataSplit::Kind::kFiles;
  JsonObject object(json, split->key);
  object.Read("format", &split->format);
  const auto& formats = DataFormats();
  const auto format = std::find_if(formats.begin(), formats.end(),
                                   [&](const DataFormat& f) { return f.name == split->format; });
  if (split->format.empty()) {
    object.Fail("format",
                fmt::format("is missing: name one of {}", fmt::join(FormatNames(), ", ")));
  } else if (format == formats.end()) {
    object.Fail("format", UnknownName(split->format, FormatNames()));
  }
  split->shuffle = which == Split::kTrain;
  object.Read("shuffle", &split->shuffle);
  if (split->shuffle && which != Split::kTrain) {
    object.Fail("shuffle",
                "is for data.train: the order makes no difference to a pass that counts "
                "each example once");
  }
  ReadPart(&object, split);
  ReadCache(&object, split);
  if (format == formats.end()) return object.Finish();
  MUSTER_RETURN_IF_ERROR(ReadColumns(&object, json, format->source, split));
  format->read(&object, split);
  MUSTER_RETURN_IF_ERROR(ReadTransforms(&object, which, split));
  return object.Finish();
}

}  // namespace

absl::StatusOr<JobData> ParseJobData(const Json& data) {
  JobData splits;
  for (DataSplit& split : splits) split.kind = DataSplit::Kind::kProgram;
  if (data.is_null()) return splits;
  JsonObject object(data, "data");
  bool any = false;
  for (const char* split : kSplits) {
    Json ignored;
    object.Read(split, &ignored);
    any |= object.Has(split);
  }
  const DataOptions options = ReadOptions(&object);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  // A "data" without splits has options for the program's own data.
  if (!any && !data.empty()) {
    if (options.auto_shard == AutoShard::kFile) return CheckFiles(splits[0]);
    return splits;
  }
  for (int i = 0; i < 3; ++i) {
    splits[i] = {};
    splits[i].key = fmt::format("data.{}", kSplits[i]);
    if (!object.Has(kSplits[i])) continue;
    MUSTER_RETURN_IF_ERROR(ReadSplit(data.at(kSplits[i]), static_cast<Split>(i), &splits[i]));
    splits[i].skip_damaged = options.skip_damaged;
  }
  if (options.auto_shard == AutoShard::kFile) MUSTER_RETURN_IF_ERROR(CheckFiles(splits[0]));
  if (splits[0].kind == DataSplit::Kind::kNone) {
    return ConfigurationError(
        "data.train is missing: name the files to train on, or set it to \"program\" to keep the "
        "program's own");
  }
  return splits;
}

absl::StatusOr<DataOptions> ParseDataOptions(const Json& data) {
  if (data.is_null()) return DataOptions();
  JsonObject object(data, "data");
  for (const char* split : kSplits) {
    Json ignored;
    object.Read(split, &ignored);
  }
  const DataOptions options = ReadOptions(&object);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  return options;
}

std::vector<std::pair<std::string, std::string>> FilesOf(const JobData& data) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const DataSplit& split : data) {
    for (const DataFormat& format : DataFormats()) {
      if (split.kind != DataSplit::Kind::kFiles || format.name != split.format) continue;
      for (auto& file : format.files(split)) files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace muster::data
