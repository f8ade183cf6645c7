// Two generators and two discriminators over points of the plane, as CycleGAN trains them over
// pictures: one forward pass, four losses, and each model's gradient from its own loss alone.
#include <ATen/Functions.h>
#include <muster/losses.h>
#include <muster/program.h>
#include <torch/nn/modules/linear.h>

namespace {

constexpr int64_t kExamples = 96, kHidden = 8;

struct Network {
  torch::nn::Linear first{nullptr}, second{nullptr};
  std::shared_ptr<torch::nn::Module> Make(int64_t in, int64_t out) {
    auto module = std::make_shared<torch::nn::Module>("network");
    first = module->register_module("first", torch::nn::Linear(in, kHidden));
    second = module->register_module("second", torch::nn::Linear(kHidden, out));
    return module;
  }
  at::Tensor operator()(const at::Tensor& x) { return second(at::tanh(first(x))); }
};

// Points of a ring and of a line, unpaired.
muster::data::DatasetPtr Points() {
  const at::Tensor angle = at::arange(kExamples, at::kDouble) * 0.7;
  const at::Tensor ring = at::stack({angle.cos(), angle.sin()}, 1);
  const at::Tensor t = at::arange(kExamples, at::kDouble) * 2 / kExamples - 1;
  const at::Tensor line = at::stack({t, 0.5 * t}, 1);
  return muster::data::Shuffle(
      *muster::data::FromTensors({ring.to(at::kFloat), line.to(at::kFloat)}));
}

at::Tensor Norm(const at::Tensor& difference) { return difference.abs().mean(1); }

class Gan : public muster::Program {
 public:
  void build(muster::Builder& builder) override {
    builder.args().Read("at_once", &at_once_);
    const muster::Json adam = {{"name", "adam"}, {"beta1", 0.5}};
    for (auto& [name, network, optimizer, out] :
         {std::tie(kNames[0], g_, opt_g_, kTwo), std::tie(kNames[1], f_, opt_f_, kTwo),
          std::tie(kNames[2], x_, opt_x_, kOne), std::tie(kNames[3], y_, opt_y_, kOne)}) {
      builder.model(name, network.Make(2, out));
      optimizer = builder.optimizer(std::string("opt_") + name, {name}, adam, 0.002);
    }
    builder.dataset(muster::Split::kTrain, [] { return Points(); });
  }

  void train_step(muster::Step& step, const muster::data::Batch& batch) override {
    if (at_once_) {
      const Losses l = Compute(batch);
      step.minimize({{opt_g_, l.g}, {opt_f_, l.f}, {opt_x_, l.x}, {opt_y_, l.y}});
      step.report("cycle", l.cycle);
    } else {
      step.minimize(opt_g_, Compute(batch).g);
      step.minimize(opt_f_, Compute(batch).f);
      step.minimize(opt_x_, Compute(batch).x);
      const Losses l = Compute(batch);
      step.minimize(opt_y_, l.y);
      step.report("cycle", l.cycle);
    }
  }

  void eval_step(muster::Evaluation& evaluation, const muster::data::Batch& batch) override {
    evaluation.loss(Compute(batch).cycle);
  }

 private:
  struct Losses {
    at::Tensor g, f, x, y, cycle;  // [batch]
  };
  Losses Compute(const muster::data::Batch& batch) {
    const at::Tensor &real_x = batch[0], &real_y = batch[1];
    const at::Tensor fake_y = g_(real_x), fake_x = f_(real_y);
    const at::Tensor cycle = 10 * (Norm(f_(fake_y) - real_x) + Norm(g_(fake_x) - real_y));
    const auto right = [](const at::Tensor& score) {
      return muster::binary_cross_entropy(score, at::ones_like(score));
    };
    const auto wrong = [](const at::Tensor& score) {
      return muster::binary_cross_entropy(score, at::zeros_like(score));
    };
    Losses l;
    l.cycle = cycle.detach();
    l.g = right(y_(fake_y)) + cycle + 5 * Norm(g_(real_y) - real_y);
    l.f = right(x_(fake_x)) + cycle + 5 * Norm(f_(real_x) - real_x);
    l.x = 0.5 * (right(x_(real_x)) + wrong(x_(fake_x)));
    l.y = 0.5 * (right(y_(real_y)) + wrong(y_(fake_y)));
    return l;
  }

  static constexpr const char* kNames[] = {"g", "f", "x", "y"};
  static constexpr int64_t kOne = 1, kTwo = 2;
  bool at_once_ = true;
  Network g_, f_, x_, y_;
  muster::OptimizerHandle opt_g_, opt_f_, opt_x_, opt_y_;
};

}  // namespace

MUSTER_PROGRAM(Gan)
