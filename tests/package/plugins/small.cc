// A program that says when its code runs: it makes the file that MUSTER_TEST_LOADED names. With
// MUSTER_TEST_THROW its constructor throws that. A job may name its callback "stop_after" with the
// number of steps after which the one replica that counts them stops training, and its schedule
// "sawtooth".
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>
#include <muster/program.h>
#include <torch/nn/module.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

namespace {

[[maybe_unused]] const bool loaded = [] {
  if (const char* path = std::getenv("MUSTER_TEST_LOADED")) std::ofstream(path) << "loaded\n";
  return true;
}();

struct Scale : torch::nn::Module {
  Scale() : weight(register_parameter("weight", at::zeros({1}))) {}
  at::Tensor weight;
};

class StopAfter : public muster::Callback {
 public:
  explicit StopAfter(int64_t steps) : steps_(steps) {}
  void step_end(muster::CallbackContext& context) override {
    if (++counted_ == steps_) context.stop("counted " + std::to_string(counted_));
    context.record("counted", counted_);
  }
  muster::Json state() const override { return counted_; }
  void set_state(const muster::Json& state) override { counted_ = state.get<int64_t>(); }

 private:
  const int64_t steps_;
  int64_t counted_ = 0;
};

// Falls from `top` to 0 in `length` steps, and begins again.
class Sawtooth : public muster::Schedule {
 public:
  Sawtooth(double top, int64_t length) : top_(top), length_(length) {}
  double At(int64_t steps) const override {
    return top_ * (1 - static_cast<double>(steps % length_) / static_cast<double>(length_));
  }

 private:
  const double top_;
  const int64_t length_;
};

class Small : public muster::Program {
 public:
  Small() {
    if (const char* what = std::getenv("MUSTER_TEST_THROW")) throw std::runtime_error(what);
  }
  void build(muster::Builder& builder) override {
    scale_ = std::make_shared<Scale>();
    builder.model("scale", scale_);
    sgd_ = builder.optimizer("sgd", {"scale"}, "sgd", 0.1);
    builder.schedule("sawtooth", [](muster::JsonObject& keys, const muster::ScheduleContext&) {
      double top = 0;
      int64_t length = 1;
      keys.Read("top", &top).Read("length", &length);
      return std::make_unique<Sawtooth>(top, length);
    });
    builder.callback("stop_after",
                     [](muster::JsonObject& keys) -> std::shared_ptr<muster::Callback> {
                       int64_t steps = 0;
                       keys.Read("steps", &steps);
                       return std::make_shared<StopAfter>(steps);
                     });
    for (const auto split : {muster::Split::kTrain, muster::Split::kValidation}) {
      builder.dataset(split, [] {
        return muster::data::FromTensors({at::zeros({40, 1}) + 1, at::zeros({40}) + 2});
      });
    }
  }
  void train_step(muster::Step& step, const muster::data::Batch& batch) override {
    step.minimize(sgd_, Loss(batch));
  }
  void eval_step(muster::Evaluation& evaluation, const muster::data::Batch& batch) override {
    evaluation.loss(Loss(batch));
  }

 private:
  at::Tensor Loss(const muster::data::Batch& batch) {
    return at::square(batch[0].select(1, 0) * scale_->weight - batch[1]);
  }
  std::shared_ptr<Scale> scale_;
  muster::OptimizerHandle sgd_;
};

}  // namespace

MUSTER_PROGRAM(Small)
