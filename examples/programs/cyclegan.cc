// CycleGAN learns to translate pictures of a domain X to pictures of a domain Y and back, without
// pairs. It has the generators G (X to Y) and F (Y to X), and the discriminators X and Y. The job
// provides the pictures in data.train and optionally data.test, as x and y of shape [channels,
// height, width], bytes or floats in [-1, 1] (format "unpaired_images"). program_args:
//   width                 channels after a generator's first convolution, default 64
//   blocks                residual blocks of a generator, default 9 from 256 pixels on, else 6
//   discriminator_width   channels after a discriminator's first convolution, default 64
//   cycle                 weight of the cycle loss, default 10
//   identity              weight of the identity loss as a fraction of `cycle`, default 0.5
//   pool                  number of translated pictures that each replica stores. Discriminators
//                         then see an older picture half of the time. Default 0: no pool
//   grid_epochs           epochs between two grids of test pictures in TensorBoard, default 10
//   grid_pictures         pictures of each domain in a grid, default 5
// The learning rate {"name": "linear_second_half", "initial": 2e-4} falls to 0 in the second half
// of training.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <muster/losses.h>

#include <algorithm>
#include <stdexcept>

#include "builtin.h"
#include "columns.h"
#include "cyclegan_pool.h"
#include "models/cyclegan_nets.h"

namespace muster {
namespace {

constexpr double kRate = 2e-4;

struct Arguments {
  nn::GeneratorOptions generator;
  nn::DiscriminatorOptions discriminator;
  double cycle = 10, identity = 0.5;
  int64_t pool = 0, grid_epochs = 10, grid_pictures = 5;
};

// `shape` is the shape of a training picture.
Arguments Read(JsonObject& args, const std::vector<int64_t>& shape) {
  Arguments a;
  a.generator.channels = a.discriminator.channels = shape[0];
  a.generator.blocks = std::min(shape[1], shape[2]) >= 256 ? 9 : 6;
  const auto read = [&](const char* key, int64_t* value, int64_t least) {
    args.Read(key, value);
    if (*value < least) args.Fail(key, fmt::format("must not be below {}, is {}", least, *value));
    *value = std::max(least, *value);
  };
  read("width", &a.generator.width, 1);
  read("blocks", &a.generator.blocks, 0);
  read("discriminator_width", &a.discriminator.width, 1);
  read("pool", &a.pool, 0);
  read("grid_epochs", &a.grid_epochs, 1);
  read("grid_pictures", &a.grid_pictures, 0);
  for (const auto& [key, value] : {std::pair("cycle", &a.cycle), {"identity", &a.identity}}) {
    args.Read(key, value);
    if (!(*value >= 0)) args.Fail(key, fmt::format("must not be below 0, is {}", *value));
  }
  return a;
}

void CheckColumns(const std::vector<data::Column>& columns, Split split) {
  if (columns.empty()) {
    if (split != Split::kTrain) return;
    throw StatusError(ConfigurationError(
        "the job has no data.train: name the pictures there, as in {\"format\": "
        "\"unpaired_images\", \"x\": \"trainA\", \"y\": \"trainB\", \"size\": 256}"));
  }
  const std::vector<int64_t>& x = columns[0].shape;
  if (columns.size() != 2 || x.size() != 3 || x != columns[1].shape) {
    throw StatusError(ConfigurationError(
        fmt::format("an example of data.{} must be two pictures [channels, height, width] of one "
                    "shape, is {}",
                    SplitName(split), Shown(columns))));
  }
  constexpr int64_t kLeast = nn::PatchDiscriminator::kLeastSide;
  if (x[1] < kLeast || x[2] < kLeast || x[1] % 4 != 0 || x[2] % 4 != 0) {
    throw StatusError(ConfigurationError(
        fmt::format("pictures of data.{} must be {} pixels or more high and wide, in multiples of "
                    "4, and are {}: set \"size\" there",
                    SplitName(split), kLeast, Shown(columns))));
  }
}

// Checks on a few pictures that floating-point values are in [-1, 1]. Training would not fail with
// other values, but give bad results.
void CheckRange(Builder& builder) {
  const std::vector<data::Column> columns = builder.data_columns(Split::kTrain);
  if (!at::isFloatingType(columns[0].type) && !at::isFloatingType(columns[1].type)) return;
  for (const at::Tensor& some : builder.data_examples(Split::kTrain, 8)) {
    if (!some.is_floating_point() || some.numel() == 0) continue;
    const auto least = some.min().item<double>(), most = some.max().item<double>();
    if (least >= -1.001 && least < 0 && most <= 1.001) continue;
    throw StatusError(ConfigurationError(fmt::format(
        "pictures of data.train are numbers from {:.4g} to {:.4g}: give bytes, or "
        "numbers from -1 to 1, as {{\"name\": \"normalize\", \"range\": [-1, 1]}} makes "
        "them",
        least, most)));
  }
}

// Returns pictures with values in [-1, 1].
at::Tensor Scaled(const at::Tensor& pictures) {
  return pictures.is_floating_point() ? pictures.to(at::kFloat)
                                      : pictures.to(at::kFloat).div_(127.5).sub_(1);
}

// Real() and Fake() are least-squares losses, averaged over the patches of each picture.
at::Tensor Real(const at::Tensor& patches) {
  return mean_squared_error(patches, at::ones_like(patches));
}
at::Tensor Fake(const at::Tensor& patches) {
  return mean_squared_error(patches, at::zeros_like(patches));
}

// The outputs of the generators for a batch. Gradients reach only the generator that was applied
// last.
struct Translations {
  at::Tensor fake_x, same_x, cycled_x;  // F(y), F(x), F(G(x))
  at::Tensor fake_y, same_y, cycled_y;  // G(x), G(y), G(F(y))
};

// The losses of one generator, each of shape [batch].
struct GeneratorLosses {
  at::Tensor adversarial, cycle, identity;
  at::Tensor total() const { return adversarial + cycle + identity; }
  Nested report() const {
    return {{"loss", adversarial}, {"cycle", cycle}, {"identity", identity}, {"total", total()}};
  }
};

// A batch, the outputs of the generators, and the discriminators' outputs for the generated
// pictures.
struct Judged {
  at::Tensor x, y;  // In [-1, 1].
  Translations translations;
  at::Tensor patches_x, patches_y;
  GeneratorLosses g, f;
};

// The rate is constant in the first half of training, and falls linearly to 0 in the second half.
class SecondHalf : public Schedule {
 public:
  SecondHalf(double initial, int64_t total) : initial_(initial), total_(total) {}
  double At(int64_t steps) const override {
    const auto total = static_cast<double>(total_);
    return initial_ * std::clamp(2 * (total - static_cast<double>(steps)) / total, 0.0, 1.0);
  }

 private:
  const double initial_;
  const int64_t total_;
};

std::unique_ptr<Schedule> MakeSecondHalf(JsonObject& keys, const ScheduleContext& context) {
  double initial = kRate;
  keys.Read("initial", &initial);
  if (!(initial >= 0)) keys.Fail("initial", fmt::format("must not be below 0, is {}", initial));
  if (context.total_steps <= 0)
    keys.Fail("name", "needs a known number of steps: set epochs or max_steps");
  return std::make_unique<SecondHalf>(initial, std::max<int64_t>(1, context.total_steps));
}

// Shows the same test pictures after different numbers of epochs. Each row has a picture, its
// translation, and the translation of that back to the first domain.
class Grids : public Callback {
 public:
  Grids(data::Batch pictures, int64_t every) : pictures_(std::move(pictures)), every_(every) {}
  bool decides_in_steps() const override { return false; }
  void epoch_end(CallbackContext& context) override {
    if ((context.epoch() + 1) % every_ != 0) return;
    Show(context, "x", pictures_[0], "y");
    Show(context, "y", pictures_[1], "x");
  }

 private:
  static void Show(CallbackContext& context, const std::string& from, const at::Tensor& pictures,
                   const std::string& to) {
    const at::Tensor translated = context.predict({pictures}, {from});
    const at::Tensor cycled = context.predict({translated}, {to});
    const at::Tensor row = at::cat({Scaled(pictures), translated, cycled}, 3).add(1).div_(2);
    // Joins all rows to one image, [1, channels, rows x height, 3 x width].
    context.image("grid/" + from + "_translated_cycled",
                  row.transpose(0, 1).flatten(1, 2).unsqueeze(0));
  }

  const data::Batch pictures_;
  const int64_t every_;
};

class CycleGan : public Program {
 public:
  void build(Builder& builder) override {
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
      CheckColumns(builder.data_columns(split), split);
    CheckRange(builder);
    const std::vector<int64_t> shape = builder.data_columns(Split::kTrain)[0].shape;
    arguments_ = Read(builder.args(), shape);
    g_ = std::make_shared<nn::ResnetGenerator>(arguments_.generator);
    f_ = std::make_shared<nn::ResnetGenerator>(arguments_.generator);
    x_ = std::make_shared<nn::PatchDiscriminator>(arguments_.discriminator);
    y_ = std::make_shared<nn::PatchDiscriminator>(arguments_.discriminator);
    builder.schedule("linear_second_half", MakeSecondHalf);
    opt_g_ = Add(builder, "G", g_);
    opt_f_ = Add(builder, "F", f_);
    opt_x_ = Add(builder, "X", x_);
    opt_y_ = Add(builder, "Y", y_);
    if (arguments_.pool > 0) {
      pools_ = std::make_shared<nn::PicturePools>(arguments_.pool, shape);
      builder.model("pools", pools_);
      builder.buffer("pools.*", BufferMode::kPerReplica);
    }
    builder.test_every(1);
    const data::Batch shown = builder.data_examples(Split::kTest, arguments_.grid_pictures);
    if (!shown.empty() && shown[0].size(0) > 0)
      builder.callback("grids", std::make_shared<Grids>(shown, arguments_.grid_epochs));
  }

  void train_step(Step& step, const data::Batch& batch) override {
    const auto [x, y, t, patches_x, patches_y, g, f] = Judge(batch);
    // Without pools, the losses of generators and discriminators can share these outputs, because
    // minimize() differentiates each loss only with respect to its own network.
    at::Tensor seen_x = patches_x, seen_y = patches_y;
    if (pools_ != nullptr) {
      const auto [older_x, older_y] =
          pools_->Exchange(t.fake_x.detach(), t.fake_y.detach(), step.generator());
      seen_x = x_->forward(older_x);
      seen_y = y_->forward(older_y);
    }
    const at::Tensor loss_x = (Real(x_->forward(x)) + Fake(seen_x)) / 2;
    const at::Tensor loss_y = (Real(y_->forward(y)) + Fake(seen_y)) / 2;
    step.minimize({{opt_g_, g.total()}, {opt_f_, f.total()}, {opt_x_, loss_x}, {opt_y_, loss_y}});
    step.report(Report(g, f, loss_x, loss_y));
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const auto [x, y, t, patches_x, patches_y, g, f] = Judge(batch);
    const at::Tensor loss_x = (Real(x_->forward(x)) + Fake(patches_x)) / 2;
    const at::Tensor loss_y = (Real(y_->forward(y)) + Fake(patches_y)) / 2;
    evaluation.loss(g.total() + f.total() + loss_x + loss_y);
    evaluation.report(Report(g, f, loss_x, loss_y));
    evaluation.report("MAE(X, F(G(X)))", mean_absolute_error(t.cycled_x, x));
    evaluation.report("MAE(X, F(X))", mean_absolute_error(t.same_x, x));
    evaluation.report("MAE(Y, G(F(Y)))", mean_absolute_error(t.cycled_y, y));
    evaluation.report("MAE(Y, G(Y))", mean_absolute_error(t.same_y, y));
  }

  // Translates pictures of X or, if the input has the name "y", pictures of Y. Returns pictures in
  // [-1, 1].
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    const std::vector<std::string>& columns = prediction.columns();
    if (columns.size() != 1)
      throw std::invalid_argument("the input has pictures of both domains: give x.npy or y.npy");
    const at::Tensor& pictures = batch[0];
    const int64_t channels = arguments_.generator.channels;
    const auto fits = [](int64_t side) { return side >= 8 && side % 4 == 0; };
    if (pictures.dim() != 4 || pictures.size(1) != channels || !fits(pictures.size(2)) ||
        !fits(pictures.size(3))) {
      throw std::invalid_argument(
          fmt::format("pictures must be [n, {}, height, width], with multiples of 4 from 8 on for "
                      "height and width, are {}",
                      channels, c10::str(pictures.sizes())));
    }
    nn::ResnetGenerator& net = columns[0] == "y" ? *f_ : *g_;
    return net.forward(Scaled(pictures)).to(at::kFloat);
  }

 private:
  static OptimizerHandle Add(Builder& builder, const char* name,
                             const std::shared_ptr<torch::nn::Module>& net) {
    builder.model(name, net);
    return builder.optimizer(name, {name}, {{"name", "adam"}, {"beta1", 0.5}}, kRate);
  }

  Translations Translate(const at::Tensor& x, const at::Tensor& y) {
    const int64_t n = x.size(0);
    Translations t;
    const auto of_g = g_->forward(at::cat({x, y})).split_with_sizes({n, n});
    const auto of_f = f_->forward(at::cat({y, x})).split_with_sizes({n, n});
    t.fake_y = of_g[0];
    t.same_y = of_g[1];
    t.fake_x = of_f[0];
    t.same_x = of_f[1];
    // A cycle trains only its second generator, so the output of the first generator is detached.
    t.cycled_y = g_->forward(t.fake_x.detach());
    t.cycled_x = f_->forward(t.fake_y.detach());
    return t;
  }

  Judged Judge(const data::Batch& batch) {
    const at::Tensor x = Scaled(batch[0]), y = Scaled(batch[1]);
    const Translations t = Translate(x, y);
    const at::Tensor patches_x = x_->forward(t.fake_x), patches_y = y_->forward(t.fake_y);
    return {x,
            y,
            t,
            patches_x,
            patches_y,
            Losses(patches_y, t.cycled_y, t.same_y, y),
            Losses(patches_x, t.cycled_x, t.same_x, x)};
  }

  GeneratorLosses Losses(const at::Tensor& patches, const at::Tensor& cycled,
                         const at::Tensor& same, const at::Tensor& real) const {
    const double identity = arguments_.cycle * arguments_.identity;
    return {Real(patches), mean_absolute_error(cycled, real) * arguments_.cycle,
            mean_absolute_error(same, real) * identity};
  }

  static Nested Report(const GeneratorLosses& g, const GeneratorLosses& f, const at::Tensor& loss_x,
                       const at::Tensor& loss_y) {
    return {{"loss_G", g.report()},
            {"loss_F", f.report()},
            {"loss_X", {{"loss", loss_x}}},
            {"loss_Y", {{"loss", loss_y}}}};
  }

  Arguments arguments_;
  std::shared_ptr<nn::ResnetGenerator> g_, f_;
  std::shared_ptr<nn::PatchDiscriminator> x_, y_;
  std::shared_ptr<nn::PicturePools> pools_;  // Null if `pool` is 0.
  OptimizerHandle opt_g_, opt_f_, opt_x_, opt_y_;
};

}  // namespace

std::unique_ptr<Program> MakeCycleGan() { return std::make_unique<CycleGan>(); }

}  // namespace muster
