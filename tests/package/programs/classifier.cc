// Points on three arms of a spiral, classified by a small network that normalises over the batches
// of all replicas. Validation and a metric; the job decides about optimizer and schedule.
#include <ATen/Functions.h>
#include <muster/losses.h>
#include <muster/program.h>
#include <muster/sync_batch_norm.h>
#include <torch/nn/modules/linear.h>

namespace {

constexpr int64_t kClasses = 3, kExamples = 300;

// {point [2], class} of example i: the same on every host.
muster::data::DatasetPtr Spiral(int64_t examples, double phase) {
  const at::Tensor i = at::arange(examples, at::kDouble);
  const at::Tensor arm = at::arange(examples) % kClasses;
  const at::Tensor radius = (i + 1) / static_cast<double>(examples);
  const at::Tensor angle = 4 * radius + arm.to(at::kDouble) * (2 * M_PI / kClasses) + phase;
  const at::Tensor points = at::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return *muster::data::FromTensors({points.to(at::kFloat), arm});
}

class Classifier : public muster::Program {
 public:
  void build(muster::Builder& builder) override {
    int64_t hidden = 16;
    builder.args().Read("hidden", &hidden);
    // A bias before a normalisation has no effect.
    first_ = torch::nn::Linear(torch::nn::LinearOptions(2, hidden).bias(false));
    normalize_ = muster::SyncBatchNorm(hidden);
    second_ = torch::nn::Linear(hidden, kClasses);
    auto network = std::make_shared<torch::nn::Module>("network");
    network->register_module("first", first_.ptr());
    network->register_module("normalize", normalize_.ptr());
    network->register_module("second", second_.ptr());
    builder.model("network", network);
    optimizer_ = builder.optimizer("optimizer", {"network"}, "adam", 0.02);
    accuracy_ = builder.metric("accuracy", muster::MakeAccuracy());
    builder.dataset(muster::Split::kTrain,
                    [] { return muster::data::Shuffle(Spiral(kExamples, 0)); });
    builder.dataset(muster::Split::kValidation, [] { return Spiral(61, 0); });
  }

  void train_step(muster::Step& step, const muster::data::Batch& batch) override {
    const at::Tensor logits = Forward(batch[0]);
    step.minimize(optimizer_, muster::cross_entropy(logits, batch[1]));
    step.update(accuracy_, logits, batch[1]);
  }

  void eval_step(muster::Evaluation& evaluation, const muster::data::Batch& batch) override {
    const at::Tensor logits = Forward(batch[0]);
    evaluation.loss(muster::cross_entropy(logits, batch[1]));
    evaluation.update(accuracy_, logits, batch[1]);
  }

 private:
  at::Tensor Forward(const at::Tensor& points) {
    return second_(at::tanh(normalize_(first_(points))));
  }

  torch::nn::Linear first_{nullptr}, second_{nullptr};
  muster::SyncBatchNorm normalize_{nullptr};
  muster::OptimizerHandle optimizer_;
  muster::MetricHandle accuracy_;
};

}  // namespace

MUSTER_PROGRAM(Classifier)
