#include "deploy/report_command.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deploy/report/page.h"
#include "deploy/report/run.h"
#include "deploy/report/table.h"

namespace muster {
namespace {

// Writes a temporary file and renames it to `path`, so that a reader never sees a partial page.
absl::Status WritePage(const std::string& path, const std::string& page) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return ConfigurationError(fmt::format("'{}' is a folder: name a file with -o", path));
  const bool special =
      std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error);
  const std::string written = special ? path : path + ".part";  // Writes to /dev/stdout itself.
  errno = 0;
  std::FILE* const file = std::fopen(written.c_str(), "wb");
  bool done = file != nullptr && std::fwrite(page.data(), 1, page.size(), file) == page.size();
  if (file != nullptr) done = std::fclose(file) == 0 && done;
  if (done && !special) done = std::rename(written.c_str(), path.c_str()) == 0;
  if (done) return absl::OkStatus();
  const std::string why = std::strerror(errno);
  if (!special) std::filesystem::remove(written, error);
  return ConfigurationError(fmt::format("cannot write '{}': {}", path, why));
}

class ReportCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "report", "Write an HTML page that compares runs: table, curves, losses, pictures");
    app->add_option("RUN", paths_, "A model_dir; may be repeated")->required();
    app->add_option("-o,--output", output_, "The page to write")
        ->default_str("report.html; with --json none");
    app->add_option("--price-per-hour", price_,
                    "The price of one member for an hour, for the column cost");
    app->add_flag("--json", json_, "Print the table as one JSON object, for scripts");
    return app;
  }

  int Run() override {
    const absl::Status status = Write();
    return status.ok() ? 0 : ReportError("report", status);
  }

 private:
  absl::Status Write() {
    if (price_ && (!std::isfinite(*price_) || *price_ < 0))
      return ConfigurationError(
          fmt::format("--price-per-hour must be a number of at least 0, is {}", *price_));
    std::vector<report::Run> runs;
    for (const std::string& path : paths_) {
      MUSTER_ASSIGN_OR_RETURN(report::Run run, report::ReadModelDir(path));
      runs.push_back(std::move(run));
    }
    MUSTER_RETURN_IF_ERROR(report::NameRuns(&runs));
    if (json_) fmt::print("{}\n", Dump(report::TableJson(runs, price_)));
    if (json_ && output_.empty()) return absl::OkStatus();
    const std::string path = output_.empty() ? "report.html" : output_;
    const std::string page = report::Page(runs, price_);
    MUSTER_RETURN_IF_ERROR(WritePage(path, page));
    if (!json_)
      fmt::print(stderr, "{}: {} run{}, {} KB\n", path, runs.size(), runs.size() == 1 ? "" : "s",
                 (page.size() + 999) / 1000);
    return absl::OkStatus();
  }

  std::vector<std::string> paths_;
  std::string output_;
  std::optional<double> price_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace muster
