// Matrix factorization with two embedding tables, for users and items. The ratings are synthetic:
// known factors plus noise. Each rating is a function of (seed, index), so a dataset of any size
// needs no file. The best possible root mean squared error is `noise`. program_args:
//   users, items    numbers of users and items, drawn uniformly for each rating
//   rank            number of known factors. Their products have variance 1
//   noise           standard deviation of the noise of a rating
//   examples        ratings of the training set
//   validation      ratings of the validation set, 0: none
//   width           width of the learned rows: a bias and width - 1 factors
//   scale           standard deviation of the values of new rows
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "builtin.h"
#include "generated.h"
#include "models/models.h"

namespace muster {
namespace {

struct Arguments {
  int64_t users = 2'000'000, items = 20'000, rank = 2, examples = 40'000'000;
  int64_t validation = 100'000, width = 8;
  double noise = 0.25, scale = 0.1;
};

Arguments Read(JsonObject& args) {
  Arguments a;
  args.Read("users", &a.users).Read("items", &a.items).Read("rank", &a.rank);
  args.Read("examples", &a.examples).Read("validation", &a.validation).Read("width", &a.width);
  args.Read("noise", &a.noise).Read("scale", &a.scale);
  Check(args, {{"users", a.users, 1},
               {"items", a.items, 1},
               {"rank", a.rank, 1},
               {"examples", a.examples, 1},
               {"validation", a.validation, 0},
               {"width", a.width, 2}});
  if (a.noise < 0) args.Fail("noise", fmt::format("must not be below 0, is {}", a.noise));
  return a;
}

class Ratings : public GeneratedDataset {
 public:
  // A dataset of ratings [first, first + size) of an infinite sequence.
  Ratings(const Arguments& arguments, uint64_t seed, int64_t first, int64_t size)
      : GeneratedDataset(size), arguments_(arguments), seed_(Random(seed).Next()), first_(first) {}

  // Returns {users, items, ratings}.
  absl::StatusOr<data::Batch> GetBatch(const std::vector<int64_t>& indices,
                                       const data::Context&) const override {
    const auto count = static_cast<int64_t>(indices.size());
    const at::Tensor users = at::empty({count}, at::kLong), items = at::empty({count}, at::kLong);
    const at::Tensor ratings = at::empty({count}, at::kFloat);
    for (int64_t i = 0; i < count; ++i) {
      Random random(seed_ ^ Random(static_cast<uint64_t>(first_ + indices[i])).Next());
      const int64_t user = random.Below(arguments_.users), item = random.Below(arguments_.items);
      users.mutable_data_ptr<int64_t>()[i] = user;
      items.mutable_data_ptr<int64_t>()[i] = item;
      ratings.mutable_data_ptr<float>()[i] =
          Truth(user, item) + static_cast<float>(arguments_.noise) * random.Normal();
    }
    return data::Batch{users, items, ratings};
  }

 private:
  // Returns the rating without noise. The biases and the product of factors each have half of the
  // variance.
  float Truth(int64_t user, int64_t item) const {
    constexpr float kHalf = 0.70710678f;
    Random of_user(seed_ + 2 * static_cast<uint64_t>(user) + 1);
    Random of_item(~seed_ + 2 * static_cast<uint64_t>(item));
    const float biases = kHalf * (of_user.Uniform() + of_item.Uniform());
    float product = 0;
    for (int64_t r = 0; r < arguments_.rank; ++r) product += of_user.Uniform() * of_item.Uniform();
    return kHalf * (biases + product / std::sqrt(static_cast<float>(arguments_.rank)));
  }

  const Arguments arguments_;
  const uint64_t seed_;
  const int64_t first_;
};

class MatrixFactorization : public Program {
 public:
  void build(Builder& builder) override {
    const Arguments arguments = Read(builder.args());
    mean_ = nn::MakeLinearUnit({.features = 1, .kernel = {0.0}});
    builder.model("mean", mean_->module());
    sgd_ = builder.optimizer("sgd", {"mean"}, "sgd", 0.1);
    EmbeddingOptions table;
    table.width = std::max<int64_t>(1, arguments.width);
    table.initializer = {{"name", "normal"}, {"scale", arguments.scale}};
    // The loss is a mean over the batch, so the gradients of a row are small. Keras' initial
    // accumulator of 0.1 would be much larger than their squares.
    table.optimizer = {{"name", "adagrad"}, {"initial_accumulator_value", 1e-8}};
    table.learning_rate = 0.2;
    users_ = builder.embedding("users", table);
    items_ = builder.embedding("items", table);
    rmse_ = builder.metric("rmse", MakeRootMeanSquaredError());
    const uint64_t seed = builder.seed();
    builder.dataset(Split::kTrain, [=]() -> absl::StatusOr<data::DatasetPtr> {
      return std::make_shared<Ratings>(arguments, seed, 0, arguments.examples);
    });
    if (arguments.validation > 0) {
      builder.dataset(Split::kValidation, [=]() -> absl::StatusOr<data::DatasetPtr> {
        return std::make_shared<Ratings>(arguments, seed, arguments.examples, arguments.validation);
      });
    }
  }

  void train_step(Step& step, const data::Batch& batch) override {
    const at::Tensor prediction = Predict(step, batch);
    step.minimize(sgd_, (prediction - batch[2]).square());
    step.update(rmse_, prediction, batch[2]);
  }

  void prefetch(Prefetch& rows, const data::Batch& batch) const override {
    rows.keys(users_, batch[0]);
    rows.keys(items_, batch[1]);
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor prediction = Predict(evaluation, batch);
    evaluation.loss((prediction - batch[2]).square());
    evaluation.update(rmse_, prediction, batch[2]);
  }

  // Returns ratings [n]. The input is integers [n, 2] (user and item), or the columns users and
  // items.
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    data::Batch keys = {Column(prediction, batch, "users"), Column(prediction, batch, "items")};
    if (batch.size() == 1 && batch[0].dim() == 2 && batch[0].size(1) == 2)
      keys = {batch[0].select(1, 0), batch[0].select(1, 1)};
    for (const at::Tensor& key : keys) {
      if (key.defined() && key.dim() == 1 && at::isIntegralType(key.scalar_type(), false)) continue;
      throw std::invalid_argument(
          "the input must be integers, [n, 2] of a user and an item, or a folder with users.npy "
          "and items.npy, [n] each");
    }
    return Predict(prediction, keys);
  }

 private:
  // Returns the column with this name, or an undefined tensor if there is none.
  static at::Tensor Column(const Prediction& prediction, const data::Batch& batch,
                           const char* name) {
    for (size_t c = 0; c < batch.size(); ++c)
      if (prediction.columns()[c] == name) return batch[c];
    return {};
  }
  template <typename Context>
  at::Tensor Predict(Context& context, const data::Batch& batch) {
    const at::Tensor user = context.lookup(users_, batch[0]);
    const at::Tensor item = context.lookup(items_, batch[1]);
    const int64_t width = user.size(1);
    const at::Tensor product = (user.narrow(1, 1, width - 1) * item.narrow(1, 1, width - 1)).sum(1);
    const at::Tensor mean = mean_->forward(at::zeros({user.size(0), 1}, user.options()));
    return product + user.select(1, 0) + item.select(1, 0) + mean;
  }

  std::unique_ptr<nn::LinearUnit> mean_;  // Its bias is the mean of all ratings.
  OptimizerHandle sgd_;
  EmbeddingHandle users_, items_;
  MetricHandle rmse_;
};

}  // namespace

std::unique_ptr<Program> MakeMatrixFactorization() {
  return std::make_unique<MatrixFactorization>();
}

}  // namespace muster
