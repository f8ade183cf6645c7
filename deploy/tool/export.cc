#include "deploy/tool/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "common/exported/export_checkpoint.h"
#include "common/train/job.h"

namespace muster {
namespace {

class ExportCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "export", "Write a trained exported program back, for torch.export.load");
    app->add_option("--checkpoint", checkpoint_,
                    "A model_dir, its checkpoints folder, or one checkpoint")
        ->required()
        ->type_name("DIR");
    app->add_option("--job", job_,
                    "The job file, where the exported program has moved since (default: as the "
                    "checkpoint has it)")
        ->type_name("FILE");
    app->add_option("--output", output_, "The file to write: model.pt2")
        ->required()
        ->type_name("FILE");
    return app;
  }

  int Run() override {
    const absl::StatusOr<std::string> taken = Export();
    if (!taken.ok()) return ReportError("export", taken.status());
    fmt::print("{}: {}\n", output_, *taken);
    return 0;
  }

 private:
  absl::StatusOr<std::string> Export() const {
    Json program;
    if (!job_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const Job job, LoadJob(job_, {}));
      program = job.program;
    }
    return exported::ExportCheckpoint(checkpoint_, program, output_);
  }

  std::string checkpoint_, job_, output_;
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace muster
