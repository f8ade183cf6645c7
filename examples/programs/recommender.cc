// A recommender like DLRM (Naumov et al. 2019). An MLP converts numeric features to a vector, and
// eight embedding tables convert keys to vectors. A second MLP predicts the probability of a click
// from the dot products of all pairs of these nine vectors. clicks.h generates the clicks.
// program_args:
//   keys            number of different keys of each of the eight features
//   zipf            exponent of the Zipf distribution of keys, 0: uniform
//   examples        clicks of the training set
//   validation      clicks of the validation set, 0: none
//   tables          number of features that the model uses, 0 to 8
//   width           width of the rows, and of the first MLP's output
//   hidden          units of each MLP's hidden layer
// The job's "embeddings" sets limits of the tables, which are named "feature0" to "feature7".
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <stdexcept>

#include "builtin.h"
#include "clicks.h"
#include "generated.h"
#include "models/models.h"

namespace muster {
namespace {

struct Arguments {
  ClickOptions clicks;
  int64_t examples = 1'000'000, validation = 50'000, tables = kClickFeatures, width = 8,
          hidden = 64;
};

Arguments Read(JsonObject& args) {
  Arguments a;
  args.Read("keys", &a.clicks.keys).Read("zipf", &a.clicks.zipf).Read("examples", &a.examples);
  args.Read("validation", &a.validation).Read("tables", &a.tables).Read("width", &a.width);
  args.Read("hidden", &a.hidden);
  Check(args, {{"keys", a.clicks.keys, 1},
               {"examples", a.examples, 1},
               {"validation", a.validation, 0},
               {"tables", a.tables, 0},
               {"width", a.width, 1},
               {"hidden", a.hidden, 1}});
  if (a.tables > kClickFeatures)
    args.Fail("tables", fmt::format("must be at most {}, is {}", kClickFeatures, a.tables));
  if (a.clicks.zipf < 0)
    args.Fail("zipf", fmt::format("must not be below 0, is {}", a.clicks.zipf));
  return a;
}

class Recommender : public Program {
 public:
  void build(Builder& builder) override {
    const Arguments arguments = Read(builder.args());
    const int64_t width = std::max<int64_t>(1, arguments.width);
    const int64_t hidden = std::max<int64_t>(1, arguments.hidden);
    const int64_t vectors = 1 + arguments.tables;
    bottom_ = nn::MakeMlp({kClickDense, hidden, width});
    top_ = nn::MakeMlp({width + vectors * (vectors - 1) / 2, hidden, 1});
    builder.model("bottom", bottom_->module());
    builder.model("top", top_->module());
    adam_ = builder.optimizer("adam", {"bottom", "top"}, "adam", 2e-3);
    EmbeddingOptions table;
    table.width = width;
    // With smaller initial values, the products of rows would have almost no gradients.
    table.initializer = {{"name", "normal"}, {"scale", 0.1}};
    // The loss is a mean over the batch, so the gradients of a row are small. Keras' initial
    // accumulator of 0.1 would be much larger than their squares.
    table.optimizer = {{"name", "adagrad"}, {"initial_accumulator_value", 1e-8}};
    table.learning_rate = 0.05;
    for (int64_t t = 0; t < arguments.tables; ++t)
      tables_.push_back(builder.embedding(fmt::format("feature{}", t), table));
    auc_ = builder.metric("auc", MakeAuc({.from_logits = true}));
    best_auc_ = builder.metric("best_auc", MakeAuc({.from_logits = true}));
    const uint64_t seed = builder.seed();
    builder.dataset(Split::kTrain, [=]() -> absl::StatusOr<data::DatasetPtr> {
      return MakeClicks(arguments.clicks, seed, 0, arguments.examples);
    });
    if (arguments.validation > 0) {
      builder.dataset(Split::kValidation, [=]() -> absl::StatusOr<data::DatasetPtr> {
        return MakeClicks(arguments.clicks, seed, arguments.examples, arguments.validation);
      });
    }
  }

  void train_step(Step& step, const data::Batch& batch) override {
    const at::Tensor logits = Logits(step, batch);
    step.minimize(adam_, Loss(logits, batch[4]));
    step.update(auc_, logits, batch[4]);
    step.update(best_auc_, batch[5], batch[4]);
  }

  void prefetch(Prefetch& rows, const data::Batch& batch) const override {
    for (size_t t = 0; t < tables_.size(); ++t) rows.keys(tables_[t], KeysOf(batch, t));
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor logits = Logits(evaluation, batch);
    evaluation.loss(Loss(logits, batch[4]));
    evaluation.update(auc_, logits, batch[4]);
    // The best possible AUC is that of the true logits.
    evaluation.update(best_auc_, batch[5], batch[4]);
  }

  // Returns the probabilities of a click, [n]. The input has the columns dense, keys, lists and
  // weights of clicks.h.
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    data::Batch inputs;
    for (const char* name : {"dense", "keys", "lists", "weights"})
      for (size_t c = 0; c < batch.size(); ++c)
        if (prediction.columns()[c] == name) inputs.push_back(batch[c]);
    if (inputs.size() != 4 || batch.size() != 4 || !Fit(inputs))
      throw std::invalid_argument(fmt::format(
          "the input must be a folder with dense.npy, [n, {}], keys.npy, [n, {}], lists.npy, [n, "
          "{}, {}], padded with {}, and weights.npy, [n, {}]",
          kClickDense, kClickFeatures - kClickLists, kClickLists, kClickValues, kClickPadding,
          kClickValues));
    return at::sigmoid(Logits(prediction, inputs));
  }

 private:
  static bool Fit(const data::Batch& inputs) {
    const int64_t n = inputs[0].dim() == 0 ? 0 : inputs[0].size(0);
    return inputs[0].sizes() == at::IntArrayRef({n, kClickDense}) &&
           inputs[1].sizes() == at::IntArrayRef({n, kClickFeatures - kClickLists}) &&
           inputs[2].sizes() == at::IntArrayRef({n, kClickLists, kClickValues}) &&
           inputs[3].sizes() == at::IntArrayRef({n, kClickValues}) &&
           at::isIntegralType(inputs[1].scalar_type(), false) &&
           at::isIntegralType(inputs[2].scalar_type(), false);
  }
  static at::Tensor KeysOf(const data::Batch& batch, size_t feature) {
    const auto list =
        static_cast<int64_t>(feature) - static_cast<int64_t>(kClickFeatures - kClickLists);
    return list < 0 ? batch[1].select(1, static_cast<int64_t>(feature)).unsqueeze(1)
                    : batch[2].select(1, list);
  }
  static at::Tensor Loss(const at::Tensor& logits, const at::Tensor& clicks) {
    return at::binary_cross_entropy_with_logits(logits, clicks, /*weight=*/{}, /*pos_weight=*/{},
                                                at::Reduction::None);
  }

  template <typename Context>
  at::Tensor Logits(Context& context, const data::Batch& batch) {
    std::vector<TableBags> bags;
    for (size_t t = 0; t < tables_.size(); ++t) {
      Bags of = {.keys = KeysOf(batch, t), .padding = kClickPadding};
      if (t + 1 == kClickFeatures) of.weights = batch[3];
      bags.push_back({tables_[t], of, Pooling::kMean});
    }
    // Looks up all tables at once, which takes one round trip with parameter servers.
    std::vector<at::Tensor> vectors = context.lookup(bags);
    vectors.push_back(bottom_->forward(batch[0].to(context.device(), at::kFloat)));
    const at::Tensor all = at::stack(vectors, 1);  // The shape is [n, vectors, width].
    const at::Tensor products = at::bmm(all, all.transpose(1, 2)).flatten(1);
    return top_->forward(at::cat({vectors.back(), products.index_select(1, Pairs(all))}, 1))
        .squeeze(1);
  }
  // Returns the indices of each pair in a flat matrix [vectors, vectors].
  static at::Tensor Pairs(const at::Tensor& all) {
    const int64_t vectors = all.size(1);
    const at::Tensor pairs = at::tril_indices(vectors, vectors, -1, at::kLong);
    return (pairs[0] * vectors + pairs[1]).to(all.device());
  }

  std::unique_ptr<nn::Model> bottom_, top_;
  std::vector<EmbeddingHandle> tables_;
  OptimizerHandle adam_;
  MetricHandle auc_, best_auc_;
};

}  // namespace

std::unique_ptr<Program> MakeRecommender() { return std::make_unique<Recommender>(); }

}  // namespace muster
