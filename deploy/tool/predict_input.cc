#include "deploy/tool/predict_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace muster {
namespace {

namespace fs = std::filesystem;
constexpr char kNpy[] = ".npy", kTarget[] = "target";

// Returns the columns of the job's own data that define the conversions. Empty if the program
// supplies its data.
absl::StatusOr<std::vector<data::DataColumn>> ColumnsOf(const Job& job) {
  MUSTER_ASSIGN_OR_RETURN(const data::JobData parsed, data::ParseJobData(job.data));
  for (const Split split : {Split::kTest, Split::kValidation, Split::kTrain}) {
    const data::DataSplit& of = data::SplitOf(parsed, split);
    if (of.kind == data::DataSplit::Kind::kFiles) return of.columns;
  }
  return std::vector<data::DataColumn>();
}

data::DataColumn FromFile(data::DataColumn column, const std::string& name, const fs::path& file) {
  if (column.key.empty()) column.key = "--input";
  column.name = name;
  column.source = file.string();
  return column;
}

absl::StatusOr<std::vector<data::DataColumn>> ColumnsOfFolder(
    const std::string& path, const std::vector<data::DataColumn>& known) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == kNpy) files.push_back(entry.path());
  if (error) return ConfigurationError(fmt::format("--input {}: {}", path, error.message()));
  if (files.empty())
    return ConfigurationError(fmt::format("--input {} holds no {} file", path, kNpy));
  std::sort(files.begin(), files.end());
  std::vector<std::string> names;
  for (const data::DataColumn& column : known) names.push_back(column.name);
  std::vector<std::pair<size_t, data::DataColumn>> placed;
  for (const fs::path& file : files) {
    const std::string name = file.stem().string();
    const size_t place = std::find(names.begin(), names.end(), name) - names.begin();
    if (!known.empty() && place == names.size()) {
      return ConfigurationError(
          fmt::format("--input {} has {}, and the job's data has the columns {}", path,
                      file.filename().string(), fmt::join(names, ", ")));
    }
    placed.emplace_back(place,
                        FromFile(known.empty() ? data::DataColumn() : known[place], name, file));
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<data::DataColumn> columns;
  for (auto& [place, column] : placed) columns.push_back(std::move(column));
  return columns;
}

}  // namespace

absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path) {
  std::error_code error;
  const fs::file_status found = fs::status(path, error);
  if (!fs::exists(found)) {
    return ConfigurationError(
        fmt::format("--input {}: {}", path, error ? error.message() : "no such file or directory"));
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<data::DataColumn> known, ColumnsOf(job));
  data::DataSplit split;
  split.kind = data::DataSplit::Kind::kFiles;
  split.key = "--input";
  split.format = "npy";
  if (fs::is_directory(found)) {
    MUSTER_ASSIGN_OR_RETURN(split.columns, ColumnsOfFolder(path, known));
  } else {
    const auto first = std::find_if(known.begin(), known.end(), [](const data::DataColumn& column) {
      return column.name != kTarget;
    });
    const bool has = first != known.end();
    split.columns = {FromFile(has ? *first : data::DataColumn(), has ? first->name : "x", path)};
  }
  return data::OpenJobSplit(split, "");
}

}  // namespace muster
