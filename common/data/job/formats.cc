#include "common/data/job/formats.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "common/base/files/files.h"
#include "common/base/hash.h"
#include "common/data/files/array_file.h"
#include "common/data/readers/readers.h"
#include "common/data/transforms/mix_up.h"

namespace muster::data {
namespace {

// ---- Formats with an array for each column

using ReadArrayFile = absl::StatusOr<at::Tensor> (*)(const std::string& path);

absl::StatusOr<OpenSplit> OpenArrays(const DataSplit& split, const std::string& folder,
                                     ReadArrayFile read) {
  std::vector<at::Tensor> arrays;
  for (const DataColumn& column : split.columns) {
    absl::StatusOr<at::Tensor> array = read(PathFrom(folder, column.source));
    if (!array.ok()) return Annotate(array.status(), column.key + ": ");
    arrays.push_back(*std::move(array));
  }
  return FromArrays(split, std::move(arrays));
}

absl::StatusOr<OpenSplit> OpenNpy(const DataSplit& split, const std::string& folder) {
  return OpenArrays(split, folder, MapNpy);
}
absl::StatusOr<OpenSplit> OpenIdx(const DataSplit& split, const std::string& folder) {
  return OpenArrays(split, folder, ReadIdx);
}

// ---- All formats: a part of the examples, conversions

// Returns a text with everything that the examples of the split's files depend on. If `with_part`
// is false, all splits of the same files share one cache.
absl::StatusOr<std::string> StampOf(const DataSplit& split, const std::string& folder,
                                    const std::string& key, bool with_part) {
  Json settings = {
      {"key", key},
      {"format", split.format},
      {"channels", split.image.channels},
      {"size", {split.image.height, split.image.width, split.image.shorter_side}},
      {"header", split.csv.header},
      {"delimiter", std::string(1, split.csv.delimiter)},
      {"dtype", split.windows.dtype},
      {"windows", {split.windows.length, split.windows.stride, split.windows.targets}}};
  if (with_part) {
    settings["part"] = {split.skip, split.take.value_or(-1)};
    if (split.fraction) settings["fraction"] = {split.fraction->first, split.fraction->second};
  } else {
    settings["mixed"] = split.is_part();  // Determines the order of an image folder.
  }
  for (const DataColumn& column : split.columns)
    settings["columns"].push_back({column.source, column.parts, column.decode});
  std::string stamp = settings.dump() + '\n';
  std::vector<std::string> paths = split.paths;
  if (paths.empty())
    for (const DataColumn& column : split.columns) paths.push_back(column.source);
  for (const std::string& path : paths) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                            MatchFiles(PathFrom(folder, path)));
    for (const std::string& file : files) {
      struct stat info = {};
      if (stat(file.c_str(), &info) != 0)
        return DataError(fmt::format("'{}' cannot be looked at: {}", file, std::strerror(errno)));
      stamp += fmt::format("{} {} {}.{:09}\n", file, static_cast<int64_t>(info.st_size),
                           static_cast<int64_t>(info.st_mtim.tv_sec),
                           static_cast<int64_t>(info.st_mtim.tv_nsec));
    }
  }
  // Hashes the names of files, because the cache file's header is too small for a million names.
  return fmt::format("{}\n{} bytes, {:016x}", settings.dump(), stamp.size(), Fnv1a(stamp));
}

absl::StatusOr<DatasetPtr> PartOf(const DataSplit& split, DatasetPtr dataset) {
  const int64_t size = dataset->size();
  if (split.fraction) {
    // Rounds both ends alike, so that adjacent parts neither overlap nor leave a gap.
    const auto place = [&](double part) { return std::llround(part * static_cast<double>(size)); };
    const int64_t begin = place(split.fraction->first), end = place(split.fraction->second);
    if (begin == end) {
      return ConfigurationError(
          fmt::format("{}.fraction is [{}, {}], which leaves none of the {} examples", split.key,
                      split.fraction->first, split.fraction->second, size));
    }
    return Take(Skip(std::move(dataset), begin), end - begin);
  }
  if (split.skip > size) {
    return ConfigurationError(
        fmt::format("{}.skip is {}, but there are {} examples", split.key, split.skip, size));
  }
  if (split.take.value_or(0) > size - split.skip) {
    return ConfigurationError(fmt::format("{}.take is {}, but there are {} examples{}", split.key,
                                          *split.take, size - split.skip,
                                          split.skip > 0 ? " after those skipped" : ""));
  }
  if (split.skip > 0) dataset = Skip(std::move(dataset), split.skip);
  return split.take ? Take(std::move(dataset), *split.take) : dataset;
}

at::ScalarType TypeNamed(const std::string& name) {
  static const std::vector<std::pair<std::string_view, at::ScalarType>> types = {
      {"float16", at::kHalf},   {"bfloat16", at::kBFloat16}, {"float32", at::kFloat},
      {"float64", at::kDouble}, {"int8", at::kChar},         {"int16", at::kShort},
      {"int32", at::kInt},      {"int64", at::kLong},        {"uint8", at::kByte},
      {"bool", at::kBool}};
  for (const auto& [known, type] : types) {
    if (known == name) return type;
  }
  return at::kFloat;
}

// How the values of a column are converted. Applied to whole batches.
struct Conversion {
  at::ScalarType from = at::kFloat, to = at::kFloat;
  double multiplied = 1, divided = 1;
  std::optional<std::vector<int64_t>> shape;

  bool none() const { return from == to && multiplied == 1 && divided == 1 && !shape; }
  at::Tensor operator()(at::Tensor batch) const {
    if (multiplied != 1 || divided != 1) {
      batch = batch.to(to == at::kDouble ? at::kDouble : at::kFloat);
      if (multiplied != 1) batch = batch.mul(multiplied);
      if (divided != 1) batch = batch.div(divided);
    }
    batch = batch.to(to);
    if (!shape) return batch;
    std::vector<int64_t> whole = {batch.size(0)};
    whole.insert(whole.end(), shape->begin(), shape->end());
    return batch.reshape(whole);
  }
};

// Returns the shape that `wanted` gives to examples of shape `shape`, with a number in place of -1.
absl::StatusOr<std::vector<int64_t>> ShapeOf(const DataColumn& wanted,
                                             const std::vector<int64_t>& shape) {
  std::vector<int64_t> result = *wanted.shape, named;
  for (int64_t dimension : result) {
    if (dimension >= 0) named.push_back(dimension);
  }
  const int64_t values = ArrayBytes(shape, 1).value_or(0), known = ArrayBytes(named, 1).value_or(0);
  const auto open = std::find(result.begin(), result.end(), -1);
  if (open == result.end() && known == values) return result;
  if (open != result.end() && known > 0 && values % known == 0) {
    *open = values / known;
    return result;
  }
  return ConfigurationError(fmt::format("{}.shape is {}, but an example of '{}' has shape {}",
                                        wanted.key, Json(*wanted.shape).dump(), wanted.source,
                                        Json(shape).dump()));
}

absl::StatusOr<Conversion> ConversionOf(const DataColumn& wanted, Column* column) {
  Conversion conversion;
  conversion.from = column->type;
  conversion.multiplied = wanted.multiplied;
  conversion.divided = wanted.divided;
  const bool scaled = wanted.multiplied != 1 || wanted.divided != 1;
  if (!wanted.dtype.empty()) {
    conversion.to = TypeNamed(wanted.dtype);
  } else if (column->type == at::kDouble || (scaled && !at::isFloatingType(column->type))) {
    conversion.to = at::kFloat;  // Parameters are float32 too.
  } else {
    conversion.to = column->type;
  }
  column->type = conversion.to;
  if (wanted.shape) {
    MUSTER_ASSIGN_OR_RETURN(column->shape, ShapeOf(wanted, column->shape));
    conversion.shape = column->shape;
  }
  return conversion;
}

// Adds MixUp after the shuffle, so that an example has another partner in each epoch.
absl::Status AddMixUp(const DataSplit& split, OpenSplit* open) {
  const std::string place = fmt::format("{}.transforms[{}]", split.key, split.transforms.size());
  MixUpOptions options = *split.mixup;
  MixUpColumns columns;
  for (size_t c = 0; c < open->columns.size(); ++c) {
    if (split.columns[c].picture) {
      columns.pictures.push_back(c);
      continue;
    }
    columns.labels = c;
    Column& labels = open->columns[c];
    if (!labels.shape.empty() || !at::isIntegralType(labels.type, /*includeBool=*/false)) {
      return ConfigurationError(fmt::format(
          "{} is mixup, whose labels are one integer for each picture, and {} is {} of shape {}",
          place, split.columns[c].key, toString(labels.type), Json(labels.shape).dump()));
    }
    const auto known = static_cast<int64_t>(labels.classes.size());
    if (options.classes == 0) options.classes = known;
    if (options.classes < known) {
      return ConfigurationError(fmt::format("{}.classes is {}, and the folder has {} classes",
                                            place, options.classes, known));
    }
    labels.type = at::kFloat;
    labels.shape = {options.classes};
  }
  open->dataset = MixUpOf(std::move(open->dataset), columns, options);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenSplit> FromArrays(const DataSplit& split, std::vector<at::Tensor> arrays) {
  OpenSplit open;
  for (size_t c = 0; c < arrays.size(); ++c) {
    const DataColumn& column = split.columns[c];
    const at::Tensor& array = arrays[c];
    if (array.dim() == 0) {
      return DataError(fmt::format(
          "{}: '{}' is a single number: its first dimension must be the number of examples",
          column.key, column.source));
    }
    if (array.size(0) != arrays[0].size(0)) {
      return DataError(fmt::format(
          "{}: '{}' has {} examples and '{}' has {}: they do not belong together", split.key,
          split.columns[0].source, arrays[0].size(0), column.source, array.size(0)));
    }
    open.columns.push_back({column.name, array.scalar_type(), array.sizes().slice(1).vec()});
  }
  MUSTER_ASSIGN_OR_RETURN(open.dataset, FromTensors(std::move(arrays)));
  return open;
}

const std::vector<FormatReader>& FormatReaders() {
  static const std::vector<FormatReader> readers = {{"csv", OpenCsv},
                                                    {"idx", OpenIdx},
                                                    {"image_folder", OpenImageFolder},
                                                    {"npy", OpenNpy},
                                                    {"npz", OpenNpz},
                                                    {"tar", OpenTar},
                                                    {"text", OpenWindows},
                                                    {"tfrecord", OpenTfRecord},
                                                    {"tokens", OpenWindows},
                                                    {"unpaired_images", OpenUnpairedImages}};
  return readers;
}

absl::StatusOr<DatasetPtr> Cached(const DataSplit& split, const std::string& folder,
                                  const std::string& key, CacheOf of, DatasetPtr dataset) {
  if (split.cache.kind == CacheOptions::Kind::kNone) return dataset;
  if (split.cache.kind == CacheOptions::Kind::kMemory) return Cache(std::move(dataset));
  MUSTER_ASSIGN_OR_RETURN(const std::string stamp,
                          StampOf(split, folder, key, of == CacheOf::kPart));
  auto cached = Cache(std::move(dataset), PathFrom(folder, split.cache.folder), stamp);
  if (!cached.ok()) return Annotate(cached.status(), split.key + ".cache: ");
  return cached;
}

absl::StatusOr<DataSplit> ShareOf(const DataSplit& split, const std::string& folder, int share,
                                  int shares) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOfPaths(split, folder));
  if (static_cast<int>(files.size()) < shares) {
    return ConfigurationError(
        fmt::format("data.auto_shard is \"file\", and {}.path means {} file{} for {} replicas: "
                    "each needs one of "
                    "its own; write more files, or use \"data\"",
                    split.key, files.size(), files.size() == 1 ? "" : "s", shares));
  }
  DataSplit part = split;
  part.paths.clear();
  for (size_t k = static_cast<size_t>(share); k < files.size(); k += static_cast<size_t>(shares))
    part.paths.push_back(files[k]);
  return part;
}

absl::StatusOr<OpenSplit> OpenJobSplit(const DataSplit& split, const std::string& folder) {
  OpenSplit open;
  for (const FormatReader& reader : FormatReaders()) {
    if (reader.name != split.format) continue;
    MUSTER_ASSIGN_OR_RETURN(open, reader.open(split, folder));
  }
  if (open.dataset == nullptr)
    return ConfigurationError(fmt::format("{}.format {} has no reader", split.key, split.format));
  MUSTER_ASSIGN_OR_RETURN(open.dataset, PartOf(split, std::move(open.dataset)));
  // In other cases the cache is already in place: before the shuffles of unpaired_images, and
  // before transforms.
  if (split.format != "unpaired_images" && split.transforms.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        open.dataset, Cached(split, folder, "examples", CacheOf::kPart, std::move(open.dataset)));
  }
  if (split.shuffle) open.dataset = Shuffle(std::move(open.dataset));
  if (split.mixup) MUSTER_RETURN_IF_ERROR(AddMixUp(split, &open));
  std::vector<Conversion> conversions;
  bool any = false;
  for (size_t c = 0; c < open.columns.size(); ++c) {
    MUSTER_ASSIGN_OR_RETURN(Conversion conversion,
                            ConversionOf(split.columns[c], &open.columns[c]));
    any |= !conversion.none();
    conversions.push_back(std::move(conversion));
  }
  if (!any) return open;
  open.dataset =
      MapBatch(std::move(open.dataset),
               [conversions](Batch batch, const Context&, const std::vector<int64_t>&) -> Batch {
                 for (size_t c = 0; c < batch.size(); ++c)
                   batch[c] = conversions[c](std::move(batch[c]));
                 return batch;
               });
  return open;
}

}  // namespace muster::data
