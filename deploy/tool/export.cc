#include "deploy/tool/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "common/checkpoint/export_file.h"
#include "common/exported/export_checkpoint.h"
#include "common/job/job.h"
#include "deploy/tool/chosen_checkpoint.h"
#include "deploy/tool/export_table.h"

namespace muster {
namespace {

class ExportCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "export", "Write a checkpoint as one file: weights, or a trained exported program");
    app->add_option("--checkpoint", checkpoint_,
                    "A model_dir, its checkpoints folder, or one checkpoint; with --job also best "
                    "or latest of its model_dir")
        ->required()
        ->type_name("DIR");
    app->add_option("--job", job_,
                    "The job file, where the exported program has moved since (default: as the "
                    "checkpoint has it)")
        ->type_name("FILE");
    app->add_option("--output", output_,
                    "The file to write: weights.safetensors with all models, or model.pt2, for "
                    "torch.export.load; with --table one that ends in .safetensors or .npy")
        ->required()
        ->type_name("FILE");
    app->add_option("--table", table_,
                    "Only one embedding table: its rows and keys, sorted by key; with FILE.npy the "
                    "keys go to FILE.keys.npy")
        ->type_name("NAME");
    app->add_flag("--optimizer", optimizer_,
                  "Also the optimizers' slots, so that training can continue from the file "
                  "(safetensors only)");
    return app;
  }

  int Run() override {
    const absl::StatusOr<std::string> taken = Export();
    if (!taken.ok()) return ReportStatus("export", taken.status());
    fmt::print("{}: {}\n", output_, *taken);
    return 0;
  }

 private:
  absl::StatusOr<std::string> Export() const {
    Job job;
    if (!job_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(job, LoadJob(job_, {}));
    }
    const bool weights = checkpoint::NamesExport(output_);
    if (!table_.empty()) MUSTER_RETURN_IF_ERROR(CheckTableFlags(weights));
    if (optimizer_ && !weights) {
      return ConfigurationError(fmt::format(
          "--optimizer goes with an --output that ends in .safetensors, which {} does not",
          output_));
    }
    MUSTER_ASSIGN_OR_RETURN(const ChosenCheckpoint chosen,
                            ChooseCheckpoint(checkpoint_, job.model_dir));
    if (!table_.empty()) {
      MUSTER_RETURN_IF_ERROR(ExportTable(chosen.snapshot, table_, output_));
    } else if (weights) {
      MUSTER_RETURN_IF_ERROR(Write(chosen));
    } else {
      MUSTER_RETURN_IF_ERROR(exported::ExportCheckpoint(chosen.snapshot, job.program, output_));
    }
    return checkpoint::CheckpointName(chosen.snapshot.state.step);
  }

  absl::Status CheckTableFlags(bool weights) const {
    if (optimizer_) {
      return ConfigurationError(
          "--table goes without --optimizer: the slots of a table are in the whole export");
    }
    if (weights || output_.ends_with(".npy")) return absl::OkStatus();
    return ConfigurationError(fmt::format(
        "--table goes with an --output that ends in .safetensors or .npy, which {} does not",
        output_));
  }

  absl::Status Write(const ChosenCheckpoint& chosen) const {
    if (optimizer_ && !chosen.whole) {
      return ConfigurationError(
          fmt::format("{} has no slots: export the checkpoint that it was made from, or leave "
                      "--optimizer out",
                      chosen.path));
    }
    const absl::Status written = checkpoint::WriteExport(checkpoint::PosixFileSystem(),
                                                         chosen.snapshot, optimizer_, output_);
    if (written.ok()) return written;
    return ConfigurationError(fmt::format("cannot write {}: {}", output_, Message(written)));
  }

  std::string checkpoint_, job_, output_, table_;
  bool optimizer_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace muster
