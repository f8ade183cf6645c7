// One Dense(1) unit with an L2 penalty on its kernel, trained by SGD on the sigmoid cross-entropy.
// The example is small enough to be computed by hand. program_args:
//   x, y          npy files [n] or [n, features], and [n]. Default: 1,000 copies of ([1.], [1.]).
//                 If the job has data, the data replaces the files
//   kernel_init   a number, or one number for each feature, default Glorot-uniform
//   bias_init     a number, default 0
//   shuffle       default false
#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <stdexcept>

#include "builtin.h"
#include "models/models.h"

namespace muster {
namespace {

constexpr int64_t kCopies = 1000;
constexpr double kL2 = 1e-4;

struct Arguments {
  std::string x, y;
  std::vector<double> kernel;
  double bias = 0;
  bool shuffle = false;
};

Arguments Read(JsonObject& args) {
  Arguments a;
  Json kernel;
  args.Read("x", &a.x).Read("y", &a.y).Read("kernel_init", &kernel);
  args.Read("bias_init", &a.bias).Read("shuffle", &a.shuffle);
  if (a.x.empty() != a.y.empty())
    args.Fail(a.x.empty() ? "x" : "y", "is missing: x and y go together");
  if (!kernel.is_null() && !kernel.is_array()) kernel = Json::array({kernel});
  for (const Json& value : kernel) {
    if (value.is_number()) {
      a.kernel.push_back(value.get<double>());
    } else {
      args.Fail("kernel_init", fmt::format("must be numbers, one or a list, has {}", value.dump()));
    }
  }
  return a;
}

// Float32 tensors [n, features] and [n].
struct Examples {
  at::Tensor x, y;
};

absl::StatusOr<Examples> Load(const Arguments& arguments) {
  if (arguments.x.empty()) return Examples{at::ones({kCopies, 1}), at::ones({kCopies})};
  MUSTER_ASSIGN_OR_RETURN(at::Tensor x, data::ReadNpy(arguments.x));
  MUSTER_ASSIGN_OR_RETURN(at::Tensor y, data::ReadNpy(arguments.y));
  if (x.dim() == 1) x = x.unsqueeze(1);
  if (y.dim() == 2 && y.size(1) == 1) y = y.squeeze(1);
  if (x.dim() != 2 || x.size(1) == 0) {
    return DataError(
        fmt::format("{} must be [n] or [n, features], is {}", arguments.x, c10::str(x.sizes())));
  }
  if (y.dim() != 1 || y.size(0) != x.size(0)) {
    return DataError(fmt::format("{} must be [{}] as {} has so many examples, is {}", arguments.y,
                                 x.size(0), arguments.x, c10::str(y.sizes())));
  }
  return Examples{x.to(at::kFloat), y.to(at::kFloat)};
}

// Returns the number of features in the job's own data.
int64_t FeaturesOf(const std::vector<data::Column>& columns) {
  if (columns.size() != 2) {
    throw std::invalid_argument(
        fmt::format("data.train must have x and y, has {} columns", columns.size()));
  }
  const std::vector<int64_t>&x = columns[0].shape, &y = columns[1].shape;
  if (x.size() > 1 || (x.size() == 1 && x[0] == 0)) {
    throw std::invalid_argument(
        fmt::format("{} of data.train must be [n] or [n, features], an example of it has shape {}",
                    columns[0].name, Json(x).dump()));
  }
  if (y.size() > 1 || (y.size() == 1 && y[0] != 1)) {
    throw std::invalid_argument(
        fmt::format("{} of data.train must be [n], an example of it has shape {}", columns[1].name,
                    Json(y).dump()));
  }
  return x.empty() ? 1 : x[0];
}

// Returns the initial values of the kernel, or an empty vector if they are random.
std::vector<double> KernelFor(int64_t features, const Arguments& arguments, JsonObject& args) {
  const size_t given = arguments.kernel.size();
  if (given <= 1 || given == static_cast<size_t>(features)) return arguments.kernel;
  args.Fail("kernel_init", fmt::format("has {} values for {} features: give one, or one for each",
                                       given, features));
  return {};
}

class Linear : public Program {
 public:
  void build(Builder& builder) override {
    const Arguments arguments = Read(builder.args());
    // Loads the examples now, because the kernel's shape needs the number of features. The dataset
    // below returns the error if this fails.
    const std::vector<data::Column> columns = builder.data_columns(Split::kTrain);
    const absl::StatusOr<Examples> examples =
        columns.empty() ? Load(arguments) : DataError("the job has data of its own");
    nn::LinearUnitOptions options{.bias = arguments.bias};
    if (!columns.empty() || examples.ok()) {
      options.features = columns.empty() ? examples->x.size(1) : FeaturesOf(columns);
      options.kernel = KernelFor(options.features, arguments, builder.args());
    }
    features_ = options.features;
    unit_ = nn::MakeLinearUnit(options);
    builder.model("unit", unit_->module());
    sgd_ = builder.optimizer("sgd", {"unit"}, {{"name", "sgd"}}, 0.01);
    builder.dataset(Split::kTrain, [=]() -> absl::StatusOr<data::DatasetPtr> {
      MUSTER_RETURN_IF_ERROR(examples.status());
      MUSTER_ASSIGN_OR_RETURN(data::DatasetPtr dataset,
                              data::FromTensors({examples->x, examples->y}));
      return arguments.shuffle ? data::Shuffle(std::move(dataset)) : dataset;
    });
  }

  void train_step(Step& step, const data::Batch& batch) override {
    step.regularize(unit_->kernel().square().sum().mul(kL2));
    step.minimize(sgd_, Loss(batch));
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    evaluation.loss(Loss(batch));
  }

  // Returns logits [n] of x.
  at::Tensor predict(Prediction&, const data::Batch& batch) override {
    const at::Tensor& x = batch[0];
    if (x.dim() > 2 || (x.dim() == 1 ? 1 : x.size(1)) != features_) {
      throw std::invalid_argument(
          fmt::format("x must be [n, {}], as the model has so many features, is {}", features_,
                      c10::str(x.sizes())));
    }
    return Logits(x);
  }

 private:
  at::Tensor Logits(const at::Tensor& x) {
    return unit_->forward((x.dim() == 1 ? x.unsqueeze(1) : x).to(at::kFloat));
  }
  // Computes the loss from logits, because the logarithm of a sigmoid would lose small values. The
  // job's own data may have shapes [n] and [n, 1], and any type.
  at::Tensor Loss(const data::Batch& batch) {
    const at::Tensor logits = Logits(batch[0]);
    const at::Tensor labels = batch[1].to(at::kFloat).view_as(logits);
    return at::binary_cross_entropy_with_logits(logits, labels, /*weight=*/{}, /*pos_weight=*/{},
                                                at::Reduction::None);
  }

  int64_t features_ = 1;
  std::unique_ptr<nn::LinearUnit> unit_;
  OptimizerHandle sgd_;
};

}  // namespace

std::unique_ptr<Program> MakeLinear() { return std::make_unique<Linear>(); }

}  // namespace muster
