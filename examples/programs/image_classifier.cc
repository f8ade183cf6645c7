// Fine-tunes an image classifier. The job provides the images in data.train and optionally
// data.validation and data.test. An example is an image [3, height, width], bytes or floats in
// [0, 1], and a label. The label is an integer below `classes` or, after MixUp, probabilities
// [classes]. program_args:
//   classes         number of classes
//   model           "mobilenet_v2" (default), "resnet18" or "resnet50"
//   weights         safetensors file with initial weights: a state_dict of torchvision's model. The
//                   last layer is not loaded, so the number of classes may differ
//   frozen_epochs   number of first epochs that train only the last layer, default 0
//   dropout         dropout before the last layer of MobileNetV2, default 0.2
//   mean, std       of each channel, for values in [0, 1]. The default is that of ImageNet, which
//                   torchvision's weights require
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <muster/losses.h>
#include <muster/vision.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "builtin.h"
#include "columns.h"

namespace muster {
namespace {

using vision::ImageClassifier;

struct Arguments {
  std::string model = "mobilenet_v2", weights;
  int64_t classes = 0, frozen_epochs = 0;
  double dropout = 0.2;
  std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
};

Arguments Read(JsonObject& args) {
  Arguments a;
  args.Read("model", &a.model).Read("weights", &a.weights).Read("classes", &a.classes);
  args.Read("frozen_epochs", &a.frozen_epochs).Read("dropout", &a.dropout);
  args.Read("mean", &a.mean).Read("std", &a.std);
  if (a.classes < 1)
    args.Fail("classes", fmt::format("must be the number of classes, is {}", a.classes));
  if (a.frozen_epochs < 0)
    args.Fail("frozen_epochs", fmt::format("must not be below 0, is {}", a.frozen_epochs));
  if (!(a.dropout >= 0 && a.dropout < 1))
    args.Fail("dropout", fmt::format("must be from 0 to below 1, is {}", a.dropout));
  if (a.mean.size() != 3) args.Fail("mean", "must be 3 numbers, one for each channel");
  const auto positive = [](double value) { return value > 0; };
  if (a.std.size() != 3 || !std::all_of(a.std.begin(), a.std.end(), positive))
    args.Fail("std", "must be 3 numbers above 0, one for each channel");
  return a;
}

std::shared_ptr<ImageClassifier> Make(const Arguments& a, JsonObject& args) {
  const int64_t classes = std::max<int64_t>(1, a.classes);
  if (a.model == "mobilenet_v2")
    return vision::MakeMobileNetV2({.classes = classes, .dropout = a.dropout});
  if (a.model == "resnet18" || a.model == "resnet50")
    return vision::MakeResNet({.depth = a.model == "resnet18" ? 18 : 50, .classes = classes});
  args.Fail(
      "model",
      fmt::format("must be \"mobilenet_v2\", \"resnet18\" or \"resnet50\", is \"{}\"", a.model));
  return vision::MakeResNet({.depth = 18, .classes = classes});
}

void CheckColumns(const std::vector<data::Column>& columns, int64_t classes, Split split) {
  if (columns.empty()) {
    if (split != Split::kTrain) return;
    throw StatusError(ConfigurationError(
        "the job has no data.train: name the images there, as in {\"format\": \"image_folder\", "
        "\"path\": \"images/train\", ...}"));
  }
  const auto& image = columns[0].shape;
  const bool pictures = columns.size() == 2 && image.size() == 3 && image[0] == 3;
  if (pictures && at::isFloatingType(columns[1].type) && columns[1].shape.size() == 1) {
    if (columns[1].shape[0] == classes) return;
    throw StatusError(ConfigurationError(fmt::format(
        "program_args.classes is {}, and labels of data.{} are probabilities {}: mixup's classes "
        "must be as many",
        classes, SplitName(split), Json(columns[1].shape).dump())));
  }
  if (!pictures || !columns[1].shape.empty()) {
    throw StatusError(ConfigurationError(fmt::format(
        "an example of data.{} must be an image [3, height, width] and a label [], is {}",
        SplitName(split), Shown(columns))));
  }
}

class Classifier : public Program {
 public:
  void build(Builder& builder) override {
    arguments_ = Read(builder.args());
    net_ = Make(arguments_, builder.args());
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
      CheckColumns(builder.data_columns(split), arguments_.classes, split);
    builder.model("net", net_);
    if (!arguments_.weights.empty()) {
      // The last layer is new. Renames the last layer in the file, so that it is not loaded.
      builder.load("net", arguments_.weights,
                   {.strict = false,
                    .rename = {{fmt::format("^{}\\.", net_->head()), "left_out_last_layer."}}});
    }
    optimizer_ = builder.optimizer("optimizer", {"net"}, "adam", 1e-3);
    accuracy_ = builder.metric("accuracy", MakeAccuracy());
    const auto shape = [&](const std::vector<double>& values) {
      return at::tensor(values, at::kFloat).reshape({1, 3, 1, 1}).to(builder.device());
    };
    mean_ = shape(arguments_.mean);
    std_ = shape(arguments_.std);
  }

  void train_step(Step& step, const data::Batch& batch) override {
    const bool frozen = step.epoch() < arguments_.frozen_epochs;
    if (frozen != frozen_) net_->freeze_base(frozen);
    frozen_ = frozen;
    const at::Tensor logits = net_->forward(Normalised(batch[0]));
    step.minimize(optimizer_, cross_entropy(logits, Labels(batch)));
    step.update(accuracy_, logits, Labels(batch));
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor logits = net_->forward(Normalised(batch[0]));
    evaluation.loss(cross_entropy(logits, Labels(batch)));
    evaluation.image("input", batch[0]);
    evaluation.update(accuracy_, logits, Labels(batch));
  }

  // Returns logits [n, classes] of images.
  at::Tensor predict(Prediction&, const data::Batch& batch) override {
    if (batch[0].dim() != 4 || batch[0].size(1) != 3) {
      throw std::invalid_argument(
          fmt::format("images must be [n, 3, height, width], are {}", c10::str(batch[0].sizes())));
    }
    return net_->forward(Normalised(batch[0]));
  }

 private:
  // Returns class numbers, or probabilities of the classes.
  static at::Tensor Labels(const data::Batch& batch) {
    return batch[1].is_floating_point() ? batch[1] : batch[1].to(at::kLong);
  }

  at::Tensor Normalised(const at::Tensor& images) {
    const at::Tensor pixels =
        images.is_floating_point() ? images.to(at::kFloat) : images.to(at::kFloat).div_(255);
    return pixels.sub(mean_).div_(std_);
  }

  Arguments arguments_;
  std::shared_ptr<ImageClassifier> net_;
  OptimizerHandle optimizer_;
  MetricHandle accuracy_;
  at::Tensor mean_, std_;
  // nullopt before the first step, because a resumed run may start frozen or not.
  std::optional<bool> frozen_;
};

}  // namespace

std::unique_ptr<Program> MakeImageClassifier() { return std::make_unique<Classifier>(); }

}  // namespace muster
