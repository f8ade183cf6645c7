// Reads the keys of each format from a split of the job's data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/data/job/hashed_column.h"
#include "common/data/job/job_data.h"

namespace muster::data {
namespace {

using Source = DataFormat::Source;
using Files = std::vector<std::pair<std::string, std::string>>;

// ---- Formats with a file for each column

void ReadArrays(JsonObject* object, DataSplit* split) {
  const bool only_targets =
      split->columns.size() == 1 && split->columns[0].key == split->key + ".y";
  if (!split->columns.empty() && !only_targets) return;
  object->Fail("x",
               "is missing: name the file with the examples (and y, the one with their "
               "targets), or all of them in columns");
}

Files ArrayFiles(const DataSplit& split) {
  Files files;
  for (const DataColumn& column : split.columns) files.emplace_back(column.key, column.source);
  return files;
}

// ---- Formats whose columns are parts of the split's own files

void ReadPath(JsonObject* object, const char* what, DataSplit* split) {
  std::string path;
  object->Read("path", &path);
  if (path.empty()) object->Fail("path", fmt::format("is missing: name {}", what));
  split->paths = {path};
}

Files PathFiles(const DataSplit& split) {
  Files files;
  for (size_t i = 0; i < split.paths.size(); ++i) {
    const std::string number = split.paths.size() == 1 ? "" : fmt::format(".{}", i);
    files.emplace_back(fmt::format("{}.path{}", split.key, number), split.paths[i]);
  }
  return files;
}

struct KnownColumn {
  const char *name, *source;
};

// Completes the columns of a format with known contents. If the job has no "columns", the columns
// are the format's x and y.
void CompleteColumns(JsonObject* object, const std::vector<KnownColumn>& known, DataSplit* split) {
  const std::string columns_key = split->key + ".columns.";
  const bool named = !split->columns.empty() && split->columns[0].key.starts_with(columns_key);
  std::vector<std::string> sources;
  for (size_t k = 0; k < known.size(); ++k) {
    sources.emplace_back(known[k].source);
    const auto has = [&](const DataColumn& column) { return column.name == known[k].name; };
    if (named || std::any_of(split->columns.begin(), split->columns.end(), has)) continue;
    DataColumn column;
    column.name = known[k].name;
    column.key = fmt::format("{}.{}", split->key, column.name);
    split->columns.insert(split->columns.begin() + static_cast<int64_t>(k), std::move(column));
  }
  for (DataColumn& column : split->columns) {
    const auto same = [&](const KnownColumn& k) { return column.name == k.name; };
    const auto it = std::find_if(known.begin(), known.end(), same);
    if (column.source.empty() && it != known.end()) column.source = it->source;
    const std::string key = column.key.substr(split->key.size() + 1);
    if (column.source.empty()) {
      object->Fail(key, fmt::format("does not say what it is: \"from\" is one of {}",
                                    fmt::join(sources, ", ")));
    } else if (std::find(sources.begin(), sources.end(), column.source) == sources.end()) {
      object->Fail(key, UnknownName(column.source, sources));
    }
    if (!column.decode.empty())
      object->Fail(key, "has \"decode\", which is for formats of encoded features");
  }
}

void ReadImageOptions(JsonObject* object, ImageOptions* image) {
  object->Read("channels", &image->channels).Read("shorter_side", &image->shorter_side);
  if (image->channels != 1 && image->channels != 3)
    object->Fail("channels", fmt::format("must be 3 (RGB) or 1 (grey), is {}", image->channels));
  Json size;
  object->Read("size", &size);
  const auto side = [](const Json& json) {
    return json.is_number_integer() && json.get<int64_t>() >= 1 && json.get<int64_t>() <= 32768;
  };
  if (size.is_array() && size.size() == 2 && side(size[0]) && side(size[1])) {
    image->height = size[0].get<int64_t>();
    image->width = size[1].get<int64_t>();
  } else if (side(size)) {
    image->height = image->width = size.get<int64_t>();
  } else if (!size.is_null()) {
    object->Fail("size", fmt::format("must be a side of 1 to 32768 pixels, or [height, width], is "
                                     "{}",
                                     size.dump()));
  }
  if (!object->Has("shorter_side")) return;
  if (!object->Has("size")) {
    object->Fail("shorter_side", "needs size, which is what is cut from the centre");
  } else if (image->shorter_side < std::max(image->height, image->width) ||
             image->shorter_side > 32768) {
    object->Fail("shorter_side",
                 fmt::format("must be from {}, the longer side of size, to 32768, "
                             "is {}",
                             std::max(image->height, image->width), image->shorter_side));
  }
}

void ReadImageFolder(JsonObject* object, DataSplit* split) {
  ReadPath(object, "the folder that has one folder of images for each class", split);
  ReadImageOptions(object, &split->image);
  CompleteColumns(object, {{"x", "image"}, {"y", "label"}}, split);
  for (DataColumn& column : split->columns) column.picture = column.source == "image";
}

// Reads a path or a list of paths.
void ReadPaths(JsonObject* object, const char* what, DataSplit* split) {
  Json paths;
  object->Read("path", &paths);
  const auto good = [](const Json& path) { return path.is_string() && path != ""; };
  if (good(paths)) paths = Json::array({paths});
  if (!paths.is_array() || paths.empty() || !std::all_of(paths.begin(), paths.end(), good)) {
    object->Fail("path", paths.is_null() ? fmt::format("is missing: name {}", what)
                                         : fmt::format("must be {}, or a list of them, is {}", what,
                                                       paths.dump()));
    return;
  }
  split->paths = paths.get<std::vector<std::string>>();
}

// Checks the columns of formats that name the contents of their files. The default source of a
// column is the column's name.
void RequireColumns(JsonObject* object, const char* what, DataSplit* split) {
  if (split->columns.empty() || split->columns[0].key == split->key + ".y")
    object->Fail("x",
                 fmt::format("is missing: name {} (and y's), or all of them in columns", what));
  for (DataColumn& column : split->columns) {
    if (column.source.empty()) column.source = column.name;
  }
}

void RefuseDecode(JsonObject* object, const DataSplit& split) {
  for (const DataColumn& column : split.columns) {
    if (column.decode.empty() || HashOf(column.decode)) continue;
    object->Fail(column.key.substr(split.key.size() + 1),
                 "has \"decode\", which is for formats of encoded features");
  }
}

void ReadNpz(JsonObject* object, DataSplit* split) {
  ReadPath(object, "the npz file", split);
  RequireColumns(object, "the array of the examples", split);
  RefuseDecode(object, *split);
}

void ReadCsv(JsonObject* object, DataSplit* split) {
  ReadPath(object, "the CSV file", split);
  std::string delimiter = ",";
  object->Read("header", &split->csv.header).Read("delimiter", &delimiter);
  if (delimiter.size() != 1 || delimiter == "\"" || delimiter == "\n" || delimiter == "\r") {
    object->Fail("delimiter", fmt::format("must be one character, such as \";\", is {}",
                                          Json(delimiter).dump()));
  } else {
    split->csv.delimiter = delimiter[0];
  }
  // By default, x has all columns of the file that y does not have.
  const bool only_targets =
      split->columns.size() == 1 && split->columns[0].key == split->key + ".y";
  if (split->columns.empty() || only_targets) {
    DataColumn x;
    x.name = "x";
    x.key = split->key + ".x";
    split->columns.insert(split->columns.begin(), std::move(x));
  }
  for (DataColumn& column : split->columns) {
    if (column.source.empty() && column.key != split->key + ".x") column.source = column.name;
  }
  RefuseDecode(object, *split);
}

void ReadWindows(JsonObject* object, DataSplit* split) {
  WindowOptions& windows = split->windows;
  object->Read("length", &windows.length).Read("targets", &windows.targets);
  windows.stride = windows.length;
  object->Read("stride", &windows.stride);
  if (windows.length < 1) {
    object->Fail("length", object->Has("length")
                               ? fmt::format("must be at least 1, is {}", windows.length)
                               : "is missing: say how many tokens an example has");
  } else if (windows.stride < 1) {
    object->Fail("stride", fmt::format("must be at least 1, is {}", windows.stride));
  }
  if (windows.targets) {
    CompleteColumns(object, {{"x", "tokens"}, {"y", "next_tokens"}}, split);
  } else {
    CompleteColumns(object, {{"x", "tokens"}}, split);
  }
}

void ReadText(JsonObject* object, DataSplit* split) {
  ReadPath(object, "the text file", split);
  ReadWindows(object, split);
}

void ReadTokens(JsonObject* object, DataSplit* split) {
  ReadPath(object, "the file of tokens", split);
  object->Read("dtype", &split->windows.dtype);
  static const std::vector<std::string> dtypes = {"uint16", "uint32"};
  if (!object->Has("dtype")) {
    object->Fail("dtype", fmt::format("is missing: say what a token is in the file, {}",
                                      fmt::join(dtypes, " or ")));
  } else if (std::find(dtypes.begin(), dtypes.end(), split->windows.dtype) == dtypes.end()) {
    object->Fail("dtype", UnknownName(split->windows.dtype, dtypes));
  }
  ReadWindows(object, split);
}

// Reads "decode", the type of features and files that consist of bytes.
void ReadDecode(JsonObject* object, DataSplit* split) {
  static const std::vector<std::string> known = {"image", "float16", "float32", "float64", "int8",
                                                 "int16", "int32",   "int64",   "uint8"};
  for (DataColumn& column : split->columns) {
    if (column.decode.empty()) continue;
    column.picture = column.decode == "image";
    if (std::find(known.begin(), known.end(), column.decode) == known.end()) {
      object->Fail(column.key.substr(split->key.size() + 1),
                   fmt::format("has a decode that {}", UnknownName(column.decode, known)));
    }
  }
  ReadImageOptions(object, &split->image);
}

void ReadTfRecord(JsonObject* object, DataSplit* split) {
  ReadPaths(object, "a TFRecord file, a folder of them, or a pattern such as \"train-*\"", split);
  RequireColumns(object, "the feature of the examples", split);
  ReadDecode(object, split);
}

// Returns true if a source such as "jpg;png" has an extension of pictures.
bool HoldsPictures(std::string source) {
  absl::AsciiStrToLower(&source);
  for (size_t at = 0; at <= source.size();) {
    const size_t end = std::min(source.find(';', at), source.size());
    const std::string one = source.substr(at, end - at), last = one.substr(one.rfind('.') + 1);
    if (last == "jpg" || last == "jpeg" || last == "png") return true;
    at = end + 1;
  }
  return false;
}

void ReadTar(JsonObject* object, DataSplit* split) {
  ReadPaths(object, "a tar file, a folder of them, or a pattern such as \"train-*.tar\"", split);
  const std::pair<const char*, const char*> usual[] = {{"x", "jpg;jpeg;png"}, {"y", "cls"}};
  if (split->columns.empty()) {
    for (const auto& [name, source] : usual) {
      DataColumn& column = split->columns.emplace_back();
      column.name = name;
      column.key = fmt::format("{}.{}", split->key, name);
    }
  }
  for (DataColumn& column : split->columns) {
    for (const auto& [name, source] : usual) {
      if (column.source.empty() && column.name == name) column.source = source;
    }
    if (column.source.empty()) column.source = column.name;
    // Without "decode", the extension determines the type.
    column.picture = HoldsPictures(column.source);
  }
  ReadDecode(object, split);
}

void ReadUnpaired(JsonObject* object, DataSplit* split) {
  ReadImageOptions(object, &split->image);
  for (DataColumn& column : split->columns) column.picture = true;
  object->Read("examples", &split->examples);
  if (object->Has("examples") && split->examples < 1)
    object->Fail("examples", fmt::format("must be at least 1, is {}", split->examples));
  if (split->columns.size() != 2) {
    object->Fail("x", "and y must name a folder of pictures each (or two of them in columns)");
  }
  for (const char* part : {"skip", "take", "fraction"}) {
    if (object->Has(part))
      object->Fail(part, "is not for folders that are no pairs: give each split its own folders");
  }
}

}  // namespace

bool ShardsByFile(std::string_view format) { return format == "tar" || format == "tfrecord"; }

const std::vector<DataFormat>& DataFormats() {
  static const std::vector<DataFormat> formats = {
      {"csv", Source::kParts, ReadCsv, PathFiles},
      {"idx", Source::kPath, ReadArrays, ArrayFiles},
      {"image_folder", Source::kFrom, ReadImageFolder, PathFiles},
      {"npy", Source::kPath, ReadArrays, ArrayFiles},
      {"npz", Source::kFrom, ReadNpz, PathFiles},
      {"tar", Source::kFrom, ReadTar, PathFiles},
      {"text", Source::kFrom, ReadText, PathFiles},
      {"tfrecord", Source::kFrom, ReadTfRecord, PathFiles},
      {"tokens", Source::kFrom, ReadTokens, PathFiles},
      {"unpaired_images", Source::kPath, ReadUnpaired, ArrayFiles}};
  return formats;
}

}  // namespace muster::data
