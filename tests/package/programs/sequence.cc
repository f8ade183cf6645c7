// The next token of padded sequences: a recurrent network whose loss counts each token that is
// there once, wherever the padding lies and however many replicas share the batch. Biases and the
// embedding have no weight decay.
#include <ATen/Functions.h>
#include <muster/losses.h>
#include <muster/program.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

namespace {

constexpr int64_t kVocabulary = 11, kTokens = 9, kExamples = 64, kWidth = 8;

// {tokens [kTokens + 1], length}: example i counts up by its own step, and is cut off somewhere.
muster::data::DatasetPtr Counting() {
  const at::Tensor i = at::arange(kExamples).unsqueeze(1);
  const at::Tensor tokens = (i + at::arange(kTokens + 1) * (1 + i % 3)) % (kVocabulary - 1) + 1;
  const at::Tensor length = at::arange(kExamples) * 5 % kTokens + 1;
  return *muster::data::FromTensors({tokens, length});
}

class Sequence : public muster::Program {
 public:
  void build(muster::Builder& builder) override {
    auto network = std::make_shared<torch::nn::Module>("network");
    embedding_ = network->register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth));
    recurrent_ = network->register_module(
        "recurrent", torch::nn::GRU(torch::nn::GRUOptions(kWidth, kWidth).batch_first(true)));
    head_ = network->register_module("head", torch::nn::Linear(kWidth, kVocabulary));
    builder.model("network", network);
    optimizer_ = builder.optimizer(
        "optimizer", {"network"},
        {{"name", "adamw"},
         {"weight_decay", 0.1},
         {"groups",
          {{{"parameters", "*bias*"}, {"weight_decay", 0}},
           {{"parameters", "*embedding*"}, {"weight_decay", 0}, {"learning_rate_scale", 0.5}}}}},
        0.02);
    accuracy_ = builder.metric("accuracy", muster::MakeAccuracy());
    builder.dataset(muster::Split::kTrain, [] { return muster::data::Shuffle(Counting()); });
    builder.dataset(muster::Split::kValidation, [] { return Counting(); });
  }

  void train_step(muster::Step& step, const muster::data::Batch& batch) override {
    const Predictions p = Predict(batch);
    step.minimize(optimizer_, p.loss, p.there);
    step.update(accuracy_, p.logits.flatten(0, 1), p.targets.flatten(), p.there.flatten());
  }

  void eval_step(muster::Evaluation& evaluation, const muster::data::Batch& batch) override {
    const Predictions p = Predict(batch);
    evaluation.loss(p.loss, p.there);
    evaluation.update(accuracy_, p.logits.flatten(0, 1), p.targets.flatten(), p.there.flatten());
  }

 private:
  struct Predictions {
    at::Tensor logits, targets, loss, there;  // [batch, tokens, ...]
  };
  Predictions Predict(const muster::data::Batch& batch) {
    const at::Tensor inputs = batch[0].slice(1, 0, kTokens), targets = batch[0].slice(1, 1);
    const at::Tensor there =
        (at::arange(kTokens).unsqueeze(0) < batch[1].unsqueeze(1)).to(at::kFloat);
    // A recurrent kernel takes no empty batch: one row of padding that weighs nothing stands in.
    const int64_t rows = inputs.size(0);
    const at::Tensor fed = rows > 0 ? inputs : at::zeros({1, kTokens}, inputs.options());
    const at::Tensor states = std::get<0>(recurrent_(embedding_(fed))).narrow(0, 0, rows);
    const at::Tensor logits = head_(states);
    const at::Tensor loss =
        at::cross_entropy_loss(logits.transpose(1, 2), targets, {}, at::Reduction::None);
    return {logits, targets, loss, there};
  }

  torch::nn::Embedding embedding_{nullptr};
  torch::nn::GRU recurrent_{nullptr};
  torch::nn::Linear head_{nullptr};
  muster::OptimizerHandle optimizer_;
  muster::MetricHandle accuracy_;
};

}  // namespace

MUSTER_PROGRAM(Sequence)
