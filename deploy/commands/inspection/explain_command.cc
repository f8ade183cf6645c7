#include "deploy/commands/inspection/explain_command.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/files/file_system.h"
#include "common/flight/flight_story.h"

namespace muster {
namespace {

using checkpoint::JoinPath;

struct RecordFiles {
  std::map<uint64_t, std::vector<std::string>> files;  // Keyed by generation.
  std::vector<absl::Status> damaged;
};

bool IsRecordName(const std::string& name) { return name.ends_with(".json"); }

absl::StatusOr<FlightRecord> ReadRecord(const std::string& path) {
  const auto text = checkpoint::ReadFile(checkpoint::PosixFileSystem(), path);
  if (!text.ok()) return text.status();
  return ParseFlightRecord(*text, path);
}

// Finds records in a folder to which a user has copied them. Ignores other files.
absl::Status FindLoose(const std::string& folder, RecordFiles* found) {
  MUSTER_ASSIGN_OR_RETURN(auto names, checkpoint::PosixFileSystem().List(folder));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!IsRecordName(name)) continue;
    const std::string path = JoinPath(folder, name);
    const auto record = ReadRecord(path);
    if (record.ok()) {
      found->files[record->header.generation].push_back(path);
    } else if (Message(record.status()).find("is not a flight record") == std::string_view::npos) {
      found->damaged.push_back(record.status());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordFiles> Find(const std::string& directory) {
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  const auto there = files.Exists(directory);
  if (!there.ok() || !*there) return ConfigurationError(fmt::format("{} is not there", directory));
  RecordFiles found;
  for (const std::string& folder : {JoinPath(directory, "flight"), directory}) {
    const auto names = files.List(folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      const uint64_t generation = GenerationOfFolder(name);
      if (generation == 0) continue;
      const auto records = files.List(JoinPath(folder, name));
      for (const std::string& record : records.value_or(std::vector<std::string>()))
        if (IsRecordName(record))
          found.files[generation].push_back(JoinPath(JoinPath(folder, name), record));
    }
    if (!found.files.empty()) return found;
  }
  if (const absl::Status listed = FindLoose(directory, &found); !listed.ok())
    return ConfigurationError(Message(listed));
  if (found.files.empty() && found.damaged.empty())
    return ConfigurationError(
        fmt::format("{} contains no flight records: name a model_dir, its flight folder, or a "
                    "folder of records (they are written when a generation or a job ends badly)",
                    directory));
  return found;
}

// Returns the generation that `wanted` selects: "" selects the last one, "2" the second generation
// of the highest term that has one, and "1.2" that of term 1. Returns 0 if there is none.
uint64_t Choose(const RecordFiles& found, const std::string& wanted) {
  uint64_t chosen = 0;
  for (const auto& [generation, files] : found.files) {
    const std::string text = GenerationText(generation);
    if (wanted.empty() || text == wanted || text.substr(text.find('.') + 1) == wanted)
      chosen = generation;
  }
  return chosen;
}

std::vector<FlightRecord> ReadAll(const std::vector<std::string>& files,
                                  std::vector<absl::Status>* damaged) {
  std::vector<FlightRecord> records;
  for (const std::string& file : files) {
    auto record = ReadRecord(file);
    if (record.ok()) {
      records.push_back(*std::move(record));
    } else {
      damaged->push_back(record.status());
    }
  }
  return records;
}

class ExplainCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "explain",
        "Explain from flight records why a generation or a job ended (exit code 2: none there, 3: "
        "damaged)");
    app->add_option("DIR", directory_, "A model_dir, its flight folder, or a folder of records")
        ->required();
    app->add_option("--generation", generation_, "Which one: 2, or 1.2 (the default: the last)");
    app->add_flag("--json", json_, "Print one JSON object, for scripts");
    return app;
  }

  int Run() override {
    absl::StatusOr<RecordFiles> found = Find(directory_);
    if (!found.ok()) return ReportStatus("explain", found.status());
    std::vector<std::string> all;
    for (const auto& [generation, files] : found->files) all.push_back(GenerationText(generation));
    const uint64_t generation = Choose(*found, generation_);
    if (generation == 0 && !found->files.empty())
      return ReportStatus("explain", ConfigurationError(fmt::format(
                                         "{} has no records of generation {}; it has {}",
                                         directory_, generation_, fmt::join(all, ", "))));
    FlightQuestion question;
    if (generation != 0) question.records = ReadAll(found->files[generation], &found->damaged);
    if (const auto next = found->files.upper_bound(generation);
        generation != 0 && next != found->files.end()) {
      std::vector<absl::Status> not_asked_for;
      question.later = ReadAll(next->second, &not_asked_for);
    }
    if (!question.records.empty()) Print(BuildFlightStory(question), all);
    for (const absl::Status& damaged : found->damaged) (void)ReportStatus("explain", damaged);
    return found->damaged.empty() ? 0 : static_cast<int>(ExitCode::kDataDamaged);
  }

 private:
  void Print(const FlightStory& story, const std::vector<std::string>& all) const {
    if (json_) {
      fmt::print("{}\n", Dump(FlightJson(story)));
      return;
    }
    for (const std::string& line : FlightLines(story)) fmt::print("{}\n", line);
    if (all.size() > 1)
      fmt::print("Generations with records: {} (--generation).\n", fmt::join(all, ", "));
  }

  std::string directory_, generation_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace muster
