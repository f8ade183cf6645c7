#include "deploy/tool/evaluate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/state/fields.h"
#include "common/job/job.h"
#include "common/telemetry/progress.h"
#include "common/train/replica/devices/devices.h"
#include "common/train/state/checkpoint_evaluator.h"
#include "deploy/tool/chosen_checkpoint.h"
#include "deploy/tool/pass_progress.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;

absl::StatusOr<std::optional<Split>> SplitNamed(const std::string& name) {
  if (name.empty()) return std::optional<Split>();
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
    if (name == SplitName(split)) return std::optional<Split>(split);
  return ConfigurationError(
      fmt::format("--split is {}: it must be train, validation or test", name));
}

// Scripts depend on these keys of `muster evaluate --json`.
OrderedJson ToJson(const ChosenCheckpoint& chosen, const CheckpointEvaluation& evaluation) {
  OrderedJson metrics = OrderedJson::object();
  for (const auto& [name, value] : evaluation.metrics)
    metrics[name] = checkpoint::NumberToJson(value);
  return {{"checkpoint", chosen.path},
          {"step", evaluation.step},
          {"split", SplitName(evaluation.split)},
          {"examples", evaluation.examples},
          {"seconds", evaluation.seconds},
          {"metrics", metrics}};
}

void Print(const ChosenCheckpoint& chosen, const CheckpointEvaluation& evaluation) {
  // A file with weights only does not contain a step.
  if (chosen.whole || evaluation.step > 0) {
    fmt::print("{}: step {}\n", chosen.path, evaluation.step);
  } else {
    fmt::print("{}\n", chosen.path);
  }
  fmt::print("{}: {} examples, {:.1f} s\n", SplitName(evaluation.split),
             FormatGrouped(evaluation.examples), evaluation.seconds);
  size_t width = 0;
  for (const auto& [name, value] : evaluation.metrics) width = std::max(width, name.size());
  for (const auto& [name, value] : evaluation.metrics)
    fmt::print("  {:<{}}  {:.6g}\n", name, width, value);
}

class EvaluateCommand : public Command {
 public:
  explicit EvaluateCommand(FindProgramFunction find_program)
      : find_program_(std::move(find_program)) {}

  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand("evaluate", "Print the metrics of a checkpoint");
    app->add_option("--job", job_, "The job file")->required()->type_name("FILE");
    app->add_option("--checkpoint", checkpoint_,
                    "A model_dir or one checkpoint, best or latest of the job's model_dir "
                    "(default: latest), or a safetensors file")
        ->type_name("CHECKPOINT");
    app->add_option("--split", split_,
                    "train, validation or test (default: validation, or test where there is none)")
        ->type_name("NAME");
    app->add_flag("--json", json_, "Print one JSON object, for scripts");
    AddSet(app, &overrides_);
    return app;
  }

  int Run() override { return ReportStatus("evaluate", Evaluate()); }

 private:
  absl::Status Evaluate() const {
    MUSTER_ASSIGN_OR_RETURN(const Job job, LoadJob(job_, overrides_));
    MUSTER_ASSIGN_OR_RETURN(const std::optional<Split> split, SplitNamed(split_));
    MUSTER_ASSIGN_OR_RETURN(const ChosenCheckpoint chosen,
                            ChooseCheckpoint(checkpoint_, job.model_dir));
    if (job.deterministic) ComputeDeterministically();
    MUSTER_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices, ParseDevices(job.devices));
    MUSTER_ASSIGN_OR_RETURN(ProgramFactory program, find_program_(job.program));
    auto evaluator = CheckpointEvaluator::Make({job, std::move(program), devices, split});
    if (absl::IsNotFound(evaluator.status()))
      return ConfigurationError(Message(evaluator.status()));
    MUSTER_RETURN_IF_ERROR(evaluator.status());
    absl::StatusOr<CheckpointEvaluation> evaluation = absl::UnknownError("");
    {
      PassProgress progress(SplitName((*evaluator)->split()),
                            BatchSizeAfterTraining(job, chosen.snapshot.state.global_batch_size,
                                                   static_cast<int>(devices.size())));
      evaluation = (*evaluator)
                       ->Evaluate(chosen.snapshot,
                                  {[&](int64_t done, int64_t total) { progress.Show(done, total); },
                                   nullptr});
    }
    MUSTER_RETURN_IF_ERROR(evaluation.status());
    if (json_) {
      fmt::print("{}\n", Dump(ToJson(chosen, *evaluation)));
    } else {
      Print(chosen, *evaluation);
    }
    return absl::OkStatus();
  }

  const FindProgramFunction find_program_;
  std::string job_, checkpoint_, split_;
  bool json_ = false;
  std::vector<std::string> overrides_;
};

}  // namespace

std::unique_ptr<Command> MakeEvaluateCommand(FindProgramFunction find_program) {
  return std::make_unique<EvaluateCommand>(std::move(find_program));
}

}  // namespace muster
