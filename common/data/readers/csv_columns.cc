// Reads a whole CSV file as columns. Several columns of the file form a float32 column (float64 if
// the job says so). A single column of the file becomes int64 if all its values are integers. Text
// becomes int64 keys.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "common/base/files/files.h"
#include "common/base/json/ordered_json.h"
#include "common/data/files/byte_source.h"
#include "common/data/files/csv.h"
#include "common/data/job/hashed_column.h"
#include "common/data/readers/readers.h"

namespace muster::data {
namespace {

// Returns, for each column of the job, the indices of the file's columns that form it.
absl::StatusOr<std::vector<std::vector<size_t>>> PlacesOf(const DataSplit& split,
                                                          const std::vector<std::string>& names,
                                                          const std::string& path) {
  std::vector<std::vector<size_t>> places(split.columns.size());
  std::vector<bool> used(names.size());
  for (size_t c = 0; c < places.size(); ++c) {
    const DataColumn& column = split.columns[c];
    std::vector<std::string> parts = column.parts;
    if (parts.empty() && !column.source.empty()) parts = {column.source};
    for (const std::string& part : parts) {
      const auto it = std::find(names.begin(), names.end(), part);
      if (it == names.end()) {
        return ConfigurationError(fmt::format("{} {} (of the columns in '{}')", column.key,
                                              UnknownName(part, names), path));
      }
      if (std::find(it + 1, names.end(), part) != names.end())
        return DataError(fmt::format("{}: '{}' has two columns '{}'", column.key, path, part));
      places[c].push_back(it - names.begin());
      used[it - names.begin()] = true;
    }
  }
  for (std::vector<size_t>& of : places) {
    if (!of.empty()) continue;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!used[i]) of.push_back(i);
    }
    if (of.empty())
      return ConfigurationError(fmt::format("{}.x: no column of '{}' is left", split.key, path));
  }
  return places;
}

// Returns a column of shape [rows], or [rows, parts] if `vector` is true.
at::Tensor TensorOf(const CsvTable& table, size_t first, size_t parts, bool vector, bool hashed) {
  if (!vector && table.columns[first].whole) {
    at::Tensor column = at::empty({table.rows}, at::TensorOptions(at::kLong));
    std::memcpy(column.mutable_data_ptr(), table.columns[first].integers.data(), column.nbytes());
    return column;
  }
  const auto width = static_cast<int64_t>(parts);
  if (hashed) {
    at::Tensor keys = at::empty({table.rows, width}, at::TensorOptions(at::kLong));
    int64_t* to = keys.mutable_data_ptr<int64_t>();
    for (int64_t row = 0; row < table.rows; ++row)
      for (size_t p = 0; p < parts; ++p) *to++ = table.columns[first + p].integers[row];
    return keys;
  }
  at::Tensor rows = at::empty({table.rows, width}, at::TensorOptions(at::kDouble));
  double* to = rows.mutable_data_ptr<double>();
  for (int64_t row = 0; row < table.rows; ++row) {
    for (size_t p = 0; p < parts; ++p) *to++ = table.columns[first + p].numbers[row];
  }
  return vector ? rows : rows.select(1, 0);
}

}  // namespace

absl::StatusOr<OpenSplit> OpenCsv(const DataSplit& split, const std::string& folder) {
  const std::string path = PathFrom(folder, split.paths[0]), key = split.key + ".path: ";
  const CsvOptions& options = split.csv;
  const auto text = [&]() -> absl::StatusOr<std::string> {
    MUSTER_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
    if (!file->bytes().starts_with("\x1f\x8b")) return std::string(file->bytes());
    return InflateAll(file->bytes(), Deflated::kGzip, path);
  }();
  if (!text.ok()) return Annotate(text.status(), key);
  const auto names = CsvNames(*text, options.header, options.delimiter, path);
  if (!names.ok()) return Annotate(names.status(), key);
  MUSTER_ASSIGN_OR_RETURN(const auto places, PlacesOf(split, *names, path));
  std::vector<CsvColumn> wanted;
  for (size_t c = 0; c < places.size(); ++c) {
    const std::string& dtype = split.columns[c].dtype;
    const bool whole = !dtype.empty() && dtype.find("float") == std::string::npos;
    for (const size_t place : places[c])
      wanted.push_back({place, whole, HashOf(split.columns[c].decode)});
  }
  const auto table = ReadCsvTable(*text, options.header, options.delimiter, path, wanted);
  if (!table.ok()) return Annotate(table.status(), key);
  std::vector<at::Tensor> arrays;
  size_t first = 0;
  for (size_t c = 0; c < places.size(); ++c) {
    const DataColumn& column = split.columns[c];
    const bool vector = !column.parts.empty() || column.source.empty();
    arrays.push_back(
        TensorOf(*table, first, places[c].size(), vector, HashOf(column.decode).has_value()));
    first += places[c].size();
  }
  return FromArrays(split, std::move(arrays));
}

}  // namespace muster::data
