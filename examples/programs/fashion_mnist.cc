// The convnet of the tutorial on Fashion-MNIST. program_args:
//   data_dir        folder with the four IDX files (Debian's package dataset-fashion-mnist)
//   hidden          units of the dense layer
//   validation      size of the validation split, the last examples of the training files
//   train_examples  limit on the number of training examples, 0: all
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <stdexcept>

#include "builtin.h"
#include "models/models.h"

namespace muster {
namespace {

struct Arguments {
  std::string data_dir = "/usr/share/datasets/fashion-mnist";
  int64_t hidden = 64, validation = 5000, train_examples = 0;
};

Arguments Read(JsonObject& args) {
  Arguments a;
  args.Read("data_dir", &a.data_dir)
      .Read("hidden", &a.hidden)
      .Read("validation", &a.validation)
      .Read("train_examples", &a.train_examples);
  if (a.hidden < 1) args.Fail("hidden", fmt::format("must be above 0, is {}", a.hidden));
  if (a.validation < 0) {
    args.Fail("validation", fmt::format("must not be below 0, is {}", a.validation));
  }
  if (a.train_examples < 0) {
    args.Fail("train_examples", fmt::format("must not be below 0, is {}", a.train_examples));
  }
  return a;
}

// The contents of one pair of IDX files: images, bytes [n, 1, 28, 28], and labels, int64 [n].
struct Files {
  at::Tensor images, labels;
};

// Returns the path of a file, which may be plain or, as in Debian's package, gzipped.
absl::StatusOr<std::string> Find(const std::string& data_dir, const std::string& name) {
  const std::string plain = data_dir + "/" + name, zipped = plain + ".gz";
  for (const std::string& path : {zipped, plain}) {
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return DataError(fmt::format(
      "no {}: install Debian's package dataset-fashion-mnist, or set program_args.data_dir to a "
      "folder with its four files",
      zipped));
}

absl::StatusOr<Files> Load(const std::string& data_dir, const std::string& prefix) {
  MUSTER_ASSIGN_OR_RETURN(const std::string images_path,
                          Find(data_dir, prefix + "-images-idx3-ubyte"));
  MUSTER_ASSIGN_OR_RETURN(const std::string labels_path,
                          Find(data_dir, prefix + "-labels-idx1-ubyte"));
  MUSTER_ASSIGN_OR_RETURN(const at::Tensor images, data::ReadIdx(images_path));
  MUSTER_ASSIGN_OR_RETURN(const at::Tensor labels, data::ReadIdx(labels_path));
  if (images.dim() != 3 || images.size(1) != 28 || images.size(2) != 28 ||
      images.scalar_type() != at::kByte) {
    return DataError(fmt::format("{} does not hold 28 x 28 images of bytes, but {}", images_path,
                                 c10::str(images.toString(), " ", images.sizes())));
  }
  if (labels.dim() != 1 || labels.size(0) != images.size(0)) {
    return DataError(fmt::format("{} holds {} labels for the {} images of {}", labels_path,
                                 c10::str(labels.sizes()), images.size(0), images_path));
  }
  const at::Tensor classes = labels.to(at::kLong);
  if (labels.numel() > 0 &&
      (classes.min().item<int64_t>() < 0 || classes.max().item<int64_t>() > 9)) {
    return DataError(fmt::format("{} holds labels outside 0 to 9", labels_path));
  }
  return Files{images.unsqueeze(1), classes};
}

// Reads the training files once for two splits.
class TrainingFiles {
 public:
  explicit TrainingFiles(Arguments arguments) : arguments_(std::move(arguments)) {}

  absl::StatusOr<data::DatasetPtr> Train() {
    MUSTER_ASSIGN_OR_RETURN(const Files files, Get());
    int64_t count = files.images.size(0) - arguments_.validation;
    if (count <= 0) {
      return ConfigurationError(
          fmt::format("program_args.validation is {}, which leaves none of "
                      "the {} training examples",
                      arguments_.validation, files.images.size(0)));
    }
    if (arguments_.train_examples > 0) count = std::min(count, arguments_.train_examples);
    MUSTER_ASSIGN_OR_RETURN(data::DatasetPtr examples, Slice(files, 0, count));
    return data::Shuffle(std::move(examples));
  }
  absl::StatusOr<data::DatasetPtr> Validation() {
    MUSTER_ASSIGN_OR_RETURN(const Files files, Get());
    const int64_t size = files.images.size(0);
    return Slice(files, std::max<int64_t>(0, size - arguments_.validation), size);
  }

 private:
  absl::StatusOr<Files> Get() {
    const std::lock_guard lock(mutex_);
    if (!files_) files_ = Load(arguments_.data_dir, "train");
    return *files_;
  }
  static absl::StatusOr<data::DatasetPtr> Slice(const Files& files, int64_t begin, int64_t end) {
    return data::FromTensors(
        {files.images.slice(0, begin, end), files.labels.slice(0, begin, end)});
  }

  const Arguments arguments_;
  std::mutex mutex_;
  std::optional<absl::StatusOr<Files>> files_;
};

class FashionMnist : public Program {
 public:
  void build(Builder& builder) override {
    const Arguments arguments = Read(builder.args());
    model_ = nn::MakeConvnet({.hidden = std::max<int64_t>(1, arguments.hidden)});
    builder.model("convnet", model_->module());
    adam_ = builder.optimizer("adam", {"convnet"}, {{"name", "adam"}},
                              {{"name", "cosine"}, {"initial", 1e-3}});
    const auto training = std::make_shared<TrainingFiles>(arguments);
    builder.dataset(Split::kTrain, [training] { return training->Train(); });
    if (arguments.validation > 0) {
      builder.dataset(Split::kValidation, [training] { return training->Validation(); });
    }
    builder.dataset(Split::kTest,
                    [data_dir = arguments.data_dir]() -> absl::StatusOr<data::DatasetPtr> {
                      MUSTER_ASSIGN_OR_RETURN(const Files files, Load(data_dir, "t10k"));
                      return data::FromTensors({files.images, files.labels});
                    });
    accuracy_ = builder.metric("accuracy", MakeAccuracy());
  }

  void train_step(Step& step, const data::Batch& batch) override {
    const at::Tensor logits = model_->forward(Pixels(batch[0]));
    step.minimize(adam_, Loss(logits, batch[1]));
    step.update(accuracy_, logits, batch[1]);
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor logits = model_->forward(Pixels(batch[0]));
    evaluation.loss(Loss(logits, batch[1]));
    evaluation.image("input", batch[0]);
    evaluation.update(accuracy_, logits, batch[1]);
  }

  // Returns logits [n, 10] of images [n, 28, 28] or [n, 1, 28, 28] with values from 0 to 255.
  at::Tensor predict(Prediction&, const data::Batch& batch) override {
    const at::Tensor images = batch[0].dim() == 3 ? batch[0].unsqueeze(1) : batch[0];
    if (images.dim() != 4 || images.sizes().slice(1) != at::IntArrayRef({1, 28, 28})) {
      throw std::invalid_argument(fmt::format(
          "images must be [n, 28, 28] or [n, 1, 28, 28], are {}", c10::str(batch[0].sizes())));
    }
    return model_->forward(Pixels(images));
  }

 private:
  // Converts images to floats on the device, because bytes need a quarter of the transfer.
  static at::Tensor Pixels(const at::Tensor& bytes) { return bytes.to(at::kFloat).div_(255); }
  static at::Tensor Loss(const at::Tensor& logits, const at::Tensor& labels) {
    return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::None);
  }

  std::unique_ptr<nn::Model> model_;
  OptimizerHandle adam_;
  MetricHandle accuracy_;
};

}  // namespace

std::unique_ptr<Program> MakeFashionMnist() { return std::make_unique<FashionMnist>(); }

}  // namespace muster
