#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <muster/losses.h>
#include <muster/nn.h>
#include <muster/program.h>

#include <cstdio>

namespace {

using muster::Nested;
using muster::ReduceOp;
using muster::Split;
using muster::data::Batch;

class Model : public torch::nn::Module {
 public:
  Model()
      : conv1_(register_module("conv1", torch::nn::Conv2d(1, 32, 3))),
        conv2_(register_module("conv2", torch::nn::Conv2d(32, 64, 3))),
        dense_(register_module("dense", torch::nn::Linear(64 * 5 * 5, 64))),
        output_(register_module("output", torch::nn::Linear(64, 10))) {}

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = at::max_pool2d(at::relu(conv1_(images)), 2);
    x = at::max_pool2d(at::relu(conv2_(x)), 2);
    return output_(at::relu(dense_(x.flatten(1))));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear dense_, output_;
};

absl::StatusOr<muster::data::DatasetPtr> Load(const std::string& name) {
  const std::string path = "/usr/share/datasets/fashion-mnist/" + name;
  MUSTER_ASSIGN_OR_RETURN(
      const auto examples,
      muster::data::LoadIdxPair(path + "-images-idx3-ubyte.gz", path + "-labels-idx1-ubyte.gz"));
  return muster::data::MapBatch(
      examples,
      [](Batch batch, const muster::data::Context&, const std::vector<int64_t>&) -> Batch {
        return {batch[0].to(at::kFloat).div_(255).unsqueeze(1), batch[1].to(at::kLong)};
      });
}

class CustomLoop : public muster::Program {
 public:
  void build(muster::Builder& builder) override {
    builder.dataset(Split::kTrain, []() -> absl::StatusOr<muster::data::DatasetPtr> {
      MUSTER_ASSIGN_OR_RETURN(const auto examples, Load("train"));
      return muster::data::Shuffle(examples);
    });
    builder.dataset(Split::kTest, [] { return Load("t10k"); });

    model_ = std::make_shared<Model>();
    builder.model("model", model_);
    adam_ = builder.optimizer("adam", {"model"}, "adam", 0.001);
    accuracy_ = builder.metric("accuracy", muster::MakeAccuracy());
  }

  void train_step(muster::Step& step, const Batch& batch) override { (void)Train(step, batch); }

  void eval_step(muster::Evaluation& evaluation, const Batch& batch) override {
    const at::Tensor predictions = model_->forward(batch[0]);
    evaluation.loss(muster::cross_entropy(predictions, batch[1]));
    evaluation.update(accuracy_, predictions, batch[1]);
  }

  void run(muster::Loop& loop) override {
    double total_loss = 0, right = 0, examples = 0;
    // Reports the end of an epoch. Also called on entry, where a resumed run may begin.
    auto end_epoch = [&] {
      if (loop.steps() == 0 || !loop.epoch_begins()) return;
      const auto test = loop.evaluate(Split::kTest);
      if (loop.replica() == 0 && examples > 0) {
        std::printf("Epoch %ld, Loss: %.4f, Accuracy: %.2f, Test Loss: %.4f, Test Accuracy: %.2f\n",
                    static_cast<long>(loop.epoch()), total_loss / examples, 100 * right / examples,
                    test.at("loss"), 100 * test.at("accuracy"));
        std::fflush(stdout);
      }
      total_loss = right = examples = 0;
    };
    end_epoch();
    Batch batch;
    while (loop.next(&batch)) {
      const muster::StepOutcome outcome =
          loop.step([this](muster::Step& step, const Batch& part) { return Train(step, part); });
      const Nested sums = loop.reduce(ReduceOp::kSum, outcome.results);
      total_loss += sums["loss"].tensor().item<double>();
      right += sums["right"].tensor().item<double>();
      examples += static_cast<double>(outcome.examples);
      end_epoch();
    }
  }

 private:
  // A step on one replica, and what it hands to the loop.
  Nested Train(muster::Step& step, const Batch& batch) {
    const at::Tensor predictions = model_->forward(batch[0]);
    const at::Tensor per_example_loss = muster::cross_entropy(predictions, batch[1]);
    step.minimize(adam_, per_example_loss);
    step.update(accuracy_, predictions, batch[1]);
    return {{"loss", per_example_loss.sum()}, {"right", predictions.argmax(1).eq(batch[1]).sum()}};
  }

  std::shared_ptr<Model> model_;
  muster::OptimizerHandle adam_;
  muster::MetricHandle accuracy_;
};

}  // namespace

MUSTER_PROGRAM(CustomLoop)
