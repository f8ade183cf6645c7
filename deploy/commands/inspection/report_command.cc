#include "deploy/commands/inspection/report_command.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
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

  int Run() override { return ReportStatus("report", Write()); }

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
    MUSTER_RETURN_IF_ERROR(WriteOutputFile(path, page));
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
