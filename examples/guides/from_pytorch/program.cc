#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <muster/losses.h>
#include <muster/nn.h>
#include <muster/program.h>

namespace {

using muster::Split;
using muster::data::Batch;

class Net : public torch::nn::Module {
 public:
  explicit Net(int64_t hidden)
      : conv_(register_module("conv", torch::nn::Conv2d(1, 32, 3))),
        dense_(register_module("dense", torch::nn::Linear(32 * 13 * 13, hidden))),
        output_(register_module("output", torch::nn::Linear(hidden, 10))) {}

  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor x = at::max_pool2d(at::relu(conv_(images)), 2);
    return output_(at::relu(dense_(x.flatten(1))));
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::Linear dense_, output_;
};

absl::StatusOr<muster::data::DatasetPtr> Read(const std::string& folder) {
  MUSTER_ASSIGN_OR_RETURN(const auto pair,
                          muster::data::LoadIdxPair(folder + "/train-images-idx3-ubyte.gz",
                                                    folder + "/train-labels-idx1-ubyte.gz"));
  return muster::data::MapBatch(
      pair, [](Batch batch, const muster::data::Context&, const std::vector<int64_t>&) -> Batch {
        return {batch[0].to(at::kFloat).div_(255).unsqueeze(1), batch[1].to(at::kLong)};
      });
}

class FashionNet : public muster::Program {
 public:
  void build(muster::Builder& builder) override {
    std::string folder = "/usr/share/datasets/fashion-mnist";
    int64_t hidden = 64, examples = 55000;
    bool shuffle = true;
    builder.args()
        .Read("folder", &folder)
        .Read("hidden", &hidden)
        .Read("examples", &examples)
        .Read("shuffle", &shuffle);

    net_ = std::make_shared<Net>(hidden);
    builder.model("net", net_);
    sgd_ = builder.optimizer(
        "sgd", {"net"}, {{"name", "sgd"}, {"momentum", 0.9}},
        {{"name", "step"}, {"initial", 0.05}, {"gamma", 0.5}, {"every_epochs", 1}});
    accuracy_ = builder.metric("accuracy", muster::MakeAccuracy());

    builder.dataset(Split::kTrain, [=]() -> absl::StatusOr<muster::data::DatasetPtr> {
      MUSTER_ASSIGN_OR_RETURN(const auto all, Read(folder));
      const auto train = muster::data::Take(all, examples);
      return shuffle ? muster::data::Shuffle(train) : train;
    });
    builder.dataset(Split::kValidation, [=]() -> absl::StatusOr<muster::data::DatasetPtr> {
      MUSTER_ASSIGN_OR_RETURN(const auto all, Read(folder));
      return muster::data::Skip(all, 55000);
    });
  }

  void train_step(muster::Step& step, const Batch& batch) override {
    const at::Tensor logits = net_->forward(batch[0]);
    step.minimize(sgd_, muster::cross_entropy(logits, batch[1]));
    step.update(accuracy_, logits, batch[1]);
  }

  void eval_step(muster::Evaluation& evaluation, const Batch& batch) override {
    const at::Tensor logits = net_->forward(batch[0]);
    evaluation.loss(muster::cross_entropy(logits, batch[1]));
    evaluation.update(accuracy_, logits, batch[1]);
  }

  at::Tensor predict(muster::Prediction&, const Batch& batch) override {
    if (batch[0].dim() != 4) throw std::invalid_argument("images must be [n, 1, 28, 28]");
    return net_->forward(batch[0].to(at::kFloat));
  }

 private:
  std::shared_ptr<Net> net_;
  muster::OptimizerHandle sgd_;
  muster::MetricHandle accuracy_;
};

}  // namespace

MUSTER_PROGRAM(FashionNet)
