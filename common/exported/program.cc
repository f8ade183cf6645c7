#include "common/exported/program.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/exported/columns.h"
#include "common/exported/graph/model.h"
#include "common/exported/losses.h"
#include "common/exported/metric_names.h"
#include "common/train/graph_observer.h"
#include "common/train/replica/replica.h"

namespace muster::exported {
namespace {

// The job's "program" and its file. The replicas of a process share it.
struct Spec {
  Archive archive;
  Loss loss;
  std::vector<NamedMetricSpec> metrics;
  int64_t output = 0;
};

class ExportedProgram : public Program, public GraphSource {
 public:
  explicit ExportedProgram(std::shared_ptr<const Spec> spec) : spec_(std::move(spec)) {}

  void build(Builder& builder) override {
    auto model = Model::Make(spec_->archive, builder.device());
    ThrowIfError(model.status());
    model_ = *std::move(model);
    ReadColumns(builder);
    builder.model("model", model_->module());
    optimizer_ = builder.optimizer("optimizer", {"model"}, {{"name", "adam"}}, 1e-3);
    for (const NamedMetricSpec& metric : spec_->metrics) {
      metrics_.push_back(builder.metric(metric.name, metric.metric));
    }
  }

  void train_step(Step& step, const data::Batch& batch) override {
    if (!checked_) ThrowIfError(model_->CheckTrained(spec_->output));
    checked_ = true;
    const Columns columns = Arrange(batch, Split::kTrain);
    const int64_t examples = columns.target.size(0);
    const at::Tensor weights = spec_->loss.Weights(columns.target);
    if (examples == 0) {
      step.minimize(optimizer_, None(model_->Zero(spec_->output), weights), weights);
      return;
    }
    if (!model_->shapes().batch().Holds(examples)) {
      throw StatusError(RefuseBatch(model_->path(), model_->shapes(), examples));
    }
    CheckShapes(columns);
    const at::Tensor output = model_->Forward(columns.inputs, Phase::kTrain, spec_->output);
    step.minimize(optimizer_, spec_->loss.values(output, columns.target), weights);
    Count(step, output.detach(), columns.target, weights);
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const Columns columns = Arrange(batch, evaluation.split());
    const int64_t examples = columns.target.size(0);
    const at::Tensor weights = spec_->loss.Weights(columns.target);
    if (examples == 0) {
      // In a pass, either all replicas or none must pass weights to loss().
      evaluation.loss(None(at::zeros({}, evaluation.device()), weights), weights);
      return;
    }
    // Predict() splits a batch whose size the program does not accept.
    if (model_->shapes().batch().Holds(examples)) CheckShapes(columns);
    const at::Tensor output = model_->Predict(columns.inputs, spec_->output);
    evaluation.loss(spec_->loss.values(output, columns.target), weights);
    Count(evaluation, output, columns.target, weights);
  }

  // Finds the columns by the names of forward()'s arguments. A single input may have any name.
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    const Shapes& shapes = model_->shapes();
    const std::vector<std::string>& names = prediction.columns();
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < shapes.inputs().size(); ++i) {
      const auto found = std::find(names.begin(), names.end(), shapes.inputs()[i].name);
      const bool any = found == names.end() && shapes.inputs().size() == 1;
      if (found == names.end() && !any)
        throw std::invalid_argument(Missing(shapes.inputs()[i].name, names));
      inputs.push_back(batch.at(any ? 0 : found - names.begin()));
      std::vector<int64_t> sizes = inputs.back().sizes().vec();
      if (!sizes.empty()) sizes[0] = 0;  // 0 matches any number of examples.
      const absl::Status fits = shapes.Check(i, sizes, inputs.back().scalar_type());
      if (!fits.ok()) throw StatusError(Annotate(fits, fmt::format("{}: ", model_->path())));
    }
    return model_->Predict(inputs, spec_->output);
  }

  std::vector<summary::GraphNode> ForwardGraph() const override { return model_->ForwardGraph(); }

 private:
  std::string Missing(const std::string& name, const std::vector<std::string>& names) const {
    return fmt::format(
        "{} takes {}, and the input has {}: name the files of a folder as the arguments of "
        "forward()",
        model_->path(), name, fmt::join(names, ", "));
  }
  struct Columns {
    std::vector<at::Tensor> inputs;  // In the order of forward()'s arguments.
    at::Tensor target;
  };

  // Finds the columns of all splits, and checks that they fit the program.
  void ReadColumns(Builder& builder);

  Columns Arrange(const data::Batch& batch, Split split) const {
    const std::vector<int>& order = order_[static_cast<int>(split)];
    Columns columns;
    for (size_t i = 0; i + 1 < order.size(); ++i) columns.inputs.push_back(batch.at(order[i]));
    columns.target = batch.at(order.back());
    return columns;
  }
  void CheckShapes(const Columns& columns) const {
    const absl::Status fits = model_->shapes().CheckBatch(columns.inputs);
    if (!fits.ok()) throw StatusError(Annotate(fits, fmt::format("{}: ", model_->path())));
  }

  // Returns the loss of an empty batch, in the shape of its weights.
  static at::Tensor None(const at::Tensor& zero, const at::Tensor& weights) {
    return zero.expand(weights.defined() ? weights.sizes() : at::IntArrayRef({0}));
  }

  template <typename StepOrEvaluation>
  void Count(StepOrEvaluation& to, const at::Tensor& output, const at::Tensor& target,
             const at::Tensor& weights) const {
    for (size_t m = 0; m < metrics_.size(); ++m) {
      const MetricArguments arguments =
          ArgumentsFor(spec_->metrics[m], output, target, weights, spec_->loss.class_dim);
      to.update(metrics_[m], arguments.output, arguments.target, arguments.weights);
    }
  }

  const std::shared_ptr<const Spec> spec_;
  std::unique_ptr<Model> model_;
  OptimizerHandle optimizer_;
  std::vector<MetricHandle> metrics_;
  // For each split, the columns of the inputs, then of the target.
  std::array<std::vector<int>, 3> order_;
  // True after the check that the loss depends on trained parameters.
  bool checked_ = false;
};

void ExportedProgram::ReadColumns(Builder& builder) {
  const std::string& path = model_->path();
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const std::vector<data::Column> columns = builder.data_columns(split);
    if (columns.empty()) continue;
    auto order = ArrangeColumns(columns, model_->shapes());
    if (!order.ok()) {
      throw StatusError(Annotate(
          order.status(), fmt::format("data.{} does not go with {}: ", SplitName(split), path)));
    }
    order_[static_cast<int>(split)] = *std::move(order);
  }
  if (order_[static_cast<int>(Split::kTrain)].empty()) {
    throw StatusError(ConfigurationError(fmt::format(
        "the job has no data, and {} brings none: name the files of its inputs and targets in "
        "data.train",
        path)));
  }
  if (const Range range = model_->shapes().batch(); range.least == range.most) {
    // The job's data replaces this dataset, but drop_remainder stays. The program accepts only one
    // batch size, so a short last batch must be dropped.
    builder.dataset(
        Split::kTrain,
        []() -> absl::StatusOr<data::DatasetPtr> { return ProgramError("the job has no data"); },
        {.drop_remainder = true});
  }
}

absl::StatusOr<std::shared_ptr<const Spec>> ReadSpec(const Json& program) {
  std::string path, model;
  Json loss, metrics = Json::array();
  int64_t output = 0;
  JsonObject object(program, "program");
  object.Read("exported", &path)
      .Read("model", &model)
      .Read("loss", &loss)
      .Read("metrics", &metrics)
      .Read("output", &output);
  if (path.empty()) object.Fail("exported", "must be the path of a file of torch.export.save");
  if (loss.is_null()) object.Fail("loss", "is missing: name one, such as \"cross_entropy\"");
  if (!metrics.is_array()) object.Fail("metrics", "must be a list of names");
  if (output < 0) object.Fail("output", fmt::format("must not be below 0, is {}", output));
  MUSTER_RETURN_IF_ERROR(object.Finish());
  auto spec = std::make_shared<Spec>();
  spec->output = output;
  MUSTER_ASSIGN_OR_RETURN(spec->loss, MakeLoss(loss, "program.loss"));
  const std::string loss_name = loss.is_string() ? loss.get<std::string>() : loss.value("name", "");
  for (size_t i = 0; i < metrics.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(NamedMetricSpec metric,
                            MakeNamedMetric(metrics[i], fmt::format("program.metrics[{}]", i),
                                            loss_name == "binary_cross_entropy"));
    for (const NamedMetricSpec& other : spec->metrics) {
      if (other.name != metric.name) continue;
      return ConfigurationError(fmt::format(
          "program.metrics[{}] is another \"{}\": show it by another name, as in {{\"name\": ..., "
          "\"as\": \"{}_2\"}}",
          i, metric.name, metric.name));
    }
    spec->metrics.push_back(std::move(metric));
  }
  MUSTER_ASSIGN_OR_RETURN(spec->archive, ReadArchive(path, model));
  return std::shared_ptr<const Spec>(std::move(spec));
}

}  // namespace

bool IsExported(const Json& program) { return program.is_object() && program.contains("exported"); }

absl::StatusOr<ProgramFactory> MakeExportedProgram(const Json& program) {
  MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<const Spec> spec, ReadSpec(program));
  // Makes a model on the CPU to find errors before training starts.
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Make(spec->archive, c10::kCPU));
  MUSTER_RETURN_IF_ERROR(model->CheckOutput(spec->output));
  return ProgramFactory([spec] { return std::make_unique<ExportedProgram>(spec); });
}

}  // namespace muster::exported
