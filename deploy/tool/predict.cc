#include "deploy/tool/predict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/files/file_system.h"
#include "common/job/job.h"
#include "common/train/predictor.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/checkpoint_evaluator.h"
#include "deploy/tool/chosen_checkpoint.h"
#include "deploy/tool/pass_progress.h"
#include "deploy/tool/predict_input.h"
#include "deploy/tool/write_npy.h"

namespace muster {
namespace {

class PredictCommand : public Command {
 public:
  explicit PredictCommand(FindProgramFunction find_program)
      : find_program_(std::move(find_program)) {}

  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app =
        muster.add_subcommand("predict", "Write the outputs of a checkpoint for an input");
    app->add_option("--job", job_, "The job file")->required()->type_name("FILE");
    app->add_option("--checkpoint", checkpoint_,
                    "A model_dir or one checkpoint, best or latest of the job's model_dir "
                    "(default: latest), or a safetensors file")
        ->type_name("CHECKPOINT");
    CLI::Option* input = app->add_option(
        "--input", input_, "An .npy file of examples, or a folder of them: one for each column");
    input->type_name("PATH");
    prompt_option_ = app->add_option("--prompt", prompt_, "A text, for programs that take one");
    prompt_option_->type_name("TEXT")->excludes(input);
    app->add_option("--output", output_, "The .npy file to write, a row for each example")
        ->required()
        ->type_name("FILE");
    AddSet(app, &overrides_);
    return app;
  }

  int Run() override { return ReportStatus("predict", Predict()); }

 private:
  bool has_prompt() const { return prompt_option_->count() > 0; }

  absl::Status CheckArguments() const {
    if (!has_prompt() && input_.empty())
      return ConfigurationError("nothing to predict from: name --input or --prompt");
    if (!output_.ends_with(".npy"))
      return ConfigurationError(fmt::format("--output {} must end in .npy", output_));
    // Checks the output before the computation.
    const std::string folder = checkpoint::ParentPath(output_);
    const auto there = checkpoint::PosixFileSystem().Exists(folder);
    if (there.ok() && *there) return absl::OkStatus();
    return ConfigurationError(
        fmt::format("cannot write {}: the folder {} does not exist", output_, folder));
  }

  absl::Status Predict() const {
    MUSTER_RETURN_IF_ERROR(CheckArguments());
    MUSTER_ASSIGN_OR_RETURN(const Job job, LoadJob(job_, overrides_));
    MUSTER_ASSIGN_OR_RETURN(const ChosenCheckpoint chosen,
                            ChooseCheckpoint(checkpoint_, job.model_dir));
    if (job.deterministic) ComputeDeterministically();
    MUSTER_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices, ParseDevices(job.devices));
    MUSTER_ASSIGN_OR_RETURN(ProgramFactory program, find_program_(job.program));
    MUSTER_ASSIGN_OR_RETURN(const auto predictor,
                            Predictor::Make({job, std::move(program), devices}));
    MUSTER_RETURN_IF_ERROR(predictor->Restore(chosen.snapshot));
    data::OpenSplit input;
    if (has_prompt()) {
      MUSTER_ASSIGN_OR_RETURN(input, predictor->Encode(prompt_));
    } else {
      MUSTER_ASSIGN_OR_RETURN(input, OpenInput(job, input_));
    }
    const int64_t batch = BatchSizeAfterTraining(job, chosen.snapshot.state.global_batch_size,
                                                 static_cast<int>(devices.size()));
    absl::StatusOr<at::Tensor> outputs = absl::UnknownError("");
    {
      PassProgress progress("predict", batch);
      outputs = predictor->Predict(
          input, batch, [&](int64_t done, int64_t total) { progress.Show(done, total); });
    }
    MUSTER_RETURN_IF_ERROR(outputs.status());
    MUSTER_RETURN_IF_ERROR(WriteNpy(output_, *outputs));
    if (has_prompt()) {
      MUSTER_ASSIGN_OR_RETURN(const std::string text, predictor->Decode(*outputs));
      if (!text.empty()) fmt::print("{}\n", text);
    }
    fmt::print("{}: {} [{}], by {}\n", output_, c10::toString(outputs->scalar_type()),
               fmt::join(outputs->sizes(), ", "), chosen.path);
    return absl::OkStatus();
  }

  const FindProgramFunction find_program_;
  std::string job_, checkpoint_, input_, prompt_, output_;
  CLI::Option* prompt_option_ = nullptr;
  std::vector<std::string> overrides_;
};

}  // namespace

std::unique_ptr<Command> MakePredictCommand(FindProgramFunction find_program) {
  return std::make_unique<PredictCommand>(std::move(find_program));
}

}  // namespace muster
