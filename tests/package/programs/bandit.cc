// Reinforcement learning with a loop of its own: a policy picks one of a few arms for each context
// that a stream delivers, is rewarded, and is updated by the score function. What is random comes
// with the stream, so that the run is the same on any number of replicas.
#include <ATen/Functions.h>
#include <muster/program.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

namespace {

constexpr int64_t kContext = 3, kArms = 4;

// {context [kContext], noise [kArms]}, without an end. The noise is Gumbel's: the arm of which
// logit + noise is largest is a draw from the policy.
class Contexts : public muster::data::Stream {
 public:
  explicit Contexts(int64_t first) : number_(first) {}
  absl::StatusOr<muster::data::Example> Next() override {
    const at::Tensor at = at::arange(kContext + kArms, at::kDouble) + 100.0 * number_++;
    const at::Tensor uniform = (at * 12.9898).sin().mul(43758.5453).frac().abs();
    const at::Tensor context = uniform.narrow(0, 0, kContext) * 2 - 1;
    const at::Tensor noise =
        -(-uniform.narrow(0, kContext, kArms).clamp(1e-9, 1 - 1e-9).log()).log();
    return muster::data::Example{context.to(at::kFloat), noise.to(at::kFloat)};
  }

 private:
  int64_t number_;
};

class Bandit : public muster::Program {
 public:
  void build(muster::Builder& builder) override {
    builder.args().Read("enough", &enough_);
    policy_ = torch::nn::Linear(kContext, kArms);
    builder.model("policy", policy_.ptr());
    optimizer_ = builder.optimizer("optimizer", {"policy"}, "sgd", 0.5);
    builder.dataset(muster::Split::kTrain, [] {
      return muster::data::FromStream(
          [](const muster::data::Context&,
             int64_t first) -> absl::StatusOr<std::unique_ptr<muster::data::Stream>> {
            return std::make_unique<Contexts>(first);
          },
          muster::data::Reopen::kAtExample);
    });
  }

  void run(muster::Loop& loop) override {
    muster::data::Batch batch;
    while (loop.next(&batch)) {
      const muster::StepOutcome outcome =
          loop.step([this](muster::Step& step, const muster::data::Batch& part) {
            return muster::Nested{{"reward", Update(step, part).sum()}};
          });
      const muster::Nested rewards =
          loop.reduce(muster::ReduceOp::kSum, outcome.results);  // of all replicas
      const double mean =
          rewards["reward"].tensor().item<double>() / static_cast<double>(outcome.examples);
      if (std::abs(mean - outcome.values.at("reward")) > 1e-5)
        throw std::runtime_error("what was reduced is not what was reported");
      if (mean >= enough_) loop.finish();
    }
  }

  void train_step(muster::Step& step, const muster::data::Batch& batch) override {
    Update(step, batch);
  }
  void eval_step(muster::Evaluation&, const muster::data::Batch&) override {}

 private:
  // The reward of each example, [batch].
  at::Tensor Update(muster::Step& step, const muster::data::Batch& batch) {
    const at::Tensor log_policy = policy_(batch[0]).log_softmax(1);
    const at::Tensor arm = (log_policy.detach() + batch[1]).argmax(1, /*keepdim=*/true);
    // Arm k pays the first component of the context, or against it, or nothing.
    const at::Tensor pays =
        at::stack({batch[0].select(1, 0), -batch[0].select(1, 0), batch[0].select(1, 1),
                   at::zeros_like(batch[0].select(1, 0))},
                  1);
    const at::Tensor reward = pays.gather(1, arm).squeeze(1);
    // The baseline is the mean over the whole batch, wherever its parts are.
    const at::Tensor sums = step.all_reduce(
        at::stack({reward.sum(), at::full({}, static_cast<double>(reward.numel()), at::kFloat)}));
    const at::Tensor advantage = reward - sums[0] / sums[1];
    step.minimize(optimizer_, -advantage * log_policy.gather(1, arm).squeeze(1));
    step.report("reward", reward);
    return reward;
  }

  double enough_ = 10;
  torch::nn::Linear policy_{nullptr};
  muster::OptimizerHandle optimizer_;
};

}  // namespace

MUSTER_PROGRAM(Bandit)
