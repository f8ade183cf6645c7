#include "deploy/report/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/json/lenient_fields.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSplits[] = {"train", "validation", "test", "eval"};
constexpr size_t kMaxFlights = 500;
constexpr double kLatest = 4e10;  // Year 3237. Later wall times are damage.

// Returns the names of the folders directly in `folder`, sorted.
std::vector<std::string> Folders(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_directory(unknown) && !entry->is_symlink(unknown))
      names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool IsModelDir(const std::string& path) {
  for (const char* name : {"job.json", "result.json", "owner.json"})
    if (IsFile(path + "/" + name)) return true;
  return std::any_of(std::begin(kSplits), std::end(kSplits),
                     [&](const char* split) { return summary::HasEvents(path + "/" + split); });
}

absl::Status CheckModelDir(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return ConfigurationError(fmt::format("{} is not there", path));
  if (!fs::is_directory(status))
    return ConfigurationError(fmt::format("{} is a file: name the model_dir of a run", path));
  if (IsModelDir(path)) return absl::OkStatus();
  std::vector<std::string> within;
  for (const std::string& name : Folders(path))
    if (IsModelDir(path + "/" + name)) within.push_back(path + "/" + name);
  if (within.empty())
    return ConfigurationError(fmt::format(
        "{} is not a run: it has neither job.json nor event files; name a model_dir", path));
  const size_t all = within.size();
  if (all > 5) within.resize(5);
  return ConfigurationError(fmt::format("{} is not a run, but has {} of them: name {}{}", path, all,
                                        fmt::join(within, " "), all > 5 ? " ..." : ""));
}

// Reads a JSON file. Returns null if it is missing. Adds a problem if it is damaged.
Json ReadObject(const std::string& path, const char* name, std::vector<std::string>* problems) {
  const std::string file = path + "/" + name;
  if (!IsFile(file)) return nullptr;
  absl::StatusOr<std::string> text = checkpoint::ReadFile(checkpoint::PosixFileSystem(), file);
  absl::StatusOr<Json> json = text.ok() ? ParseJson(*text, name) : text.status();
  if (json.ok() && !json->is_object())
    json = ConfigurationError(fmt::format("{}: it is not a JSON object", name));
  if (json.ok()) return *std::move(json);
  problems->push_back(fmt::format("{} is damaged ({})", name, Message(json.status())));
  return nullptr;
}

void ReadEvents(const std::string& name, Run* run) {
  const std::string folder = run->path + "/" + name;
  if (!summary::HasEvents(folder)) return;
  summary::RunContent content = summary::ReadRun(folder);
  for (const summary::WriterFile& file : content.files) {
    if (file.first > 0 && file.last < kLatest) {
      run->began = run->began == 0 ? file.first : std::min(run->began, file.first);
      run->last = std::max(run->last, file.last);
    }
    if (file.unread_bytes > 0)
      run->problems.push_back(fmt::format("{}/{}: the last {} bytes are incomplete or damaged",
                                          name, file.name, file.unread_bytes));
  }
  run->folders[name] = std::move(content);
}

void ReadFlights(Run* run) {
  const std::string flight = run->path + "/flight";
  for (const std::string& generation : Folders(flight)) {
    if (GenerationOfFolder(generation) == 0) continue;
    checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
    auto names = files.List(flight + "/" + generation).value_or(std::vector<std::string>());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string path = fmt::format("{}/{}/{}", flight, generation, name);
      if (!name.ends_with(".json") || !IsFile(path) || run->flights.size() >= kMaxFlights) continue;
      const absl::StatusOr<std::string> text = checkpoint::ReadFile(files, path);
      absl::StatusOr<FlightRecord> record =
          text.ok() ? ParseFlightRecord(*text, fmt::format("flight/{}/{}", generation, name))
                    : text.status();
      if (record.ok()) {
        run->flights.push_back(*std::move(record));
      } else {
        run->problems.emplace_back(Message(record.status()));
      }
    }
  }
}

// Returns the last `count` names of a path, "b/c" of "/a/b/c" for 2.
std::string EndOf(const fs::path& path, size_t count) {
  fs::path end;
  for (fs::path at = path; count > 0 && at.has_filename(); --count, at = at.parent_path())
    end = end.empty() ? at.filename() : at.filename() / end;
  return end.empty() ? path.string() : end.string();
}

}  // namespace

absl::StatusOr<Run> ReadModelDir(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(CheckModelDir(path));
  Run run{.path = path};
  run.job = ReadObject(path, "job.json", &run.problems);
  run.result = ReadObject(path, "result.json", &run.problems);
  if (run.result.is_null() && !IsFile(path + "/result.json"))
    run.problems.emplace_back("it has no result.json: it has not ended, or its chief was killed");
  run.recovery = run.result.is_null() ? ReadObject(path, "recovery.json", &run.problems)
                                      : FieldAt(run.result, {"recovery"});
  for (const std::string& name : Folders(path)) {
    if (name == "checkpoints" || name == "flight" || name == "logs") continue;
    ReadEvents(name, &run);
    for (const std::string& inner : Folders(path + "/" + name))
      ReadEvents(name + "/" + inner, &run);
  }
  ReadFlights(&run);
  return run;
}

absl::Status NameRuns(std::vector<Run>* runs) {
  std::map<std::string, std::string> seen;  // Maps canonical paths to the user's.
  std::vector<fs::path> paths;
  for (const Run& run : *runs) {
    std::error_code error;
    const fs::path path = fs::weakly_canonical(run.path, error);
    paths.push_back(error ? fs::path(run.path) : path);
    if (!paths.back().has_filename()) paths.back() = paths.back().parent_path();  // "a/"
    const auto [found, added] = seen.emplace(paths.back().string(), run.path);
    if (!added)
      return ConfigurationError(fmt::format("{} and {} are the same folder: name each run once",
                                            found->second, run.path));
  }
  for (size_t i = 0; i < runs->size(); ++i) {
    for (size_t count = 1; count <= 64; ++count) {
      (*runs)[i].name = EndOf(paths[i], count);
      size_t same = 0;
      for (const fs::path& path : paths) same += EndOf(path, count) == (*runs)[i].name ? 1 : 0;
      if (same == 1) break;
    }
  }
  return absl::OkStatus();
}

double SecondsOf(const Run& run) {
  const std::optional<double> current = NumberAt(run.result, {"wall_seconds"});
  // The start of the current chief. Its part ends with the last event.
  const double started = current ? run.last - *current : run.last;
  std::vector<std::pair<double, double>> spans;
  for (const char* split : kSplits) {
    const auto folder = run.folders.find(split);
    if (folder == run.folders.end()) continue;
    for (const summary::WriterFile& file : folder->second.files)
      if (file.first > 0 && file.first < started && file.last < kLatest)
        spans.emplace_back(file.first, std::min(file.last, started));
  }
  std::sort(spans.begin(), spans.end());
  double seconds = current.value_or(0), end = 0;
  for (const auto& [first, last] : spans) {
    seconds += std::max(0.0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return seconds;
}

}  // namespace muster::report
