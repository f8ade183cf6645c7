#include "muster/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <ostream>

#include "common/train/step/step_impl.h"

namespace muster {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor Wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// Returns all dimensions except the channels.
std::vector<int64_t> Dimensions(const at::Tensor& x) {
  std::vector<int64_t> dimensions(x.dim() - 1);
  std::iota(dimensions.begin() + 1, dimensions.end(), 2);
  return dimensions;
}

// Reshapes [channels] to [1, channels, 1, ...].
at::Tensor Like(const at::Tensor& x, const at::Tensor& of_channels) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = x.size(1);
  return of_channels.to(Wide(x).scalar_type()).reshape(shape);
}

// Computes the sums of (x - shift) and of its square for each channel, as one tensor [2 x
// channels]. When running statistics have settled, the shift is near the mean, and few digits are
// lost by cancellation.
struct ShiftedSums : torch::autograd::Function<ShiftedSums> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& shift) {
    context->save_for_backward({x, shift});
    const at::Tensor d = Wide(x) - Like(x, shift);
    const auto type = x.is_cpu() ? at::kDouble : d.scalar_type();
    return at::cat({d.sum(Dimensions(x), /*keepdim=*/false, type),
                    (d * d).sum(Dimensions(x), /*keepdim=*/false, type)});
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &shift = saved[1];
    const auto parts = gradients[0].chunk(2);
    const at::Tensor d = Wide(x) - Like(x, shift);
    return {(Like(x, parts[0]) + 2 * d * Like(x, parts[1])).to(x.scalar_type()), at::Tensor()};
  }
};

struct Normalized : torch::autograd::Function<Normalized> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& mean,
                            const at::Tensor& inverse, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, mean, inverse, weight, bias});
    const at::Tensor d = Wide(x) - Like(x, mean);
    return (d * Like(x, inverse * weight) + Like(x, bias)).to(x.scalar_type());
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &mean = saved[1], &inverse = saved[2], &weight = saved[3];
    const at::Tensor dy = Wide(gradients[0]);
    const at::Tensor factor = inverse * weight;
    const at::Tensor sum = dy.sum(Dimensions(x)).to(mean.scalar_type());
    const at::Tensor product =
        (dy * (Wide(x) - Like(x, mean))).sum(Dimensions(x)).to(mean.scalar_type());
    return {(dy * Like(x, factor)).to(x.scalar_type()), -sum * factor, product * weight,
            (product * inverse).to(weight.scalar_type()), sum.to(saved[4].scalar_type())};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& given) : options(given) {
  reset();
}

void SyncBatchNormImpl::reset() {
  TORCH_CHECK(options.channels > 0, "SyncBatchNorm needs a number of channels above 0, is ",
              options.channels);
  weight = register_parameter(
      "weight", options.affine ? at::ones({options.channels}) : at::Tensor(), options.affine);
  bias = register_parameter("bias", options.affine ? at::zeros({options.channels}) : at::Tensor(),
                            options.affine);
  running_mean = register_buffer("running_mean", at::zeros({options.channels}));
  running_var = register_buffer("running_var", at::ones({options.channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "muster::SyncBatchNorm(" << options.channels << ", epsilon=" << options.epsilon << ")";
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  TORCH_CHECK(x.dim() >= 2 && x.size(1) == options.channels, "SyncBatchNorm of ", options.channels,
              " channels needs an input [batch, channels, ...], has ", x.sizes());
  if (!is_training()) {
    return at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false,
                          /*momentum=*/0, options.epsilon, /*cudnn_enabled=*/true);
  }
  StepImpl* const step = StepImpl::Current();
  TORCH_CHECK(step != nullptr,
              "SyncBatchNorm in training mode is for train_step, where all replicas meet: call "
              "eval() on the model before it is used elsewhere");
  StepCollectives& collectives = step->Collectives("SyncBatchNorm");
  const at::Tensor shift = running_mean.detach().clone();
  const at::Tensor sums = ShiftedSums::apply(x, shift);
  const double own = static_cast<double>(x.numel()) / static_cast<double>(options.channels);
  const at::Tensor all =
      collectives.AllReduce(at::cat({sums, at::full({1}, own, sums.options())}), ReduceOp::kSum);
  const double count = all[-1].detach().item<double>();
  TORCH_CHECK(count != 1,
              "SyncBatchNorm got one value for each channel from all replicas together, which has "
              "no variance: make batches larger, or set drop_remainder");
  const at::Tensor moments = all.narrow(0, 0, 2 * options.channels) / std::max(count, 1.0);
  const at::Tensor from_shift = moments.narrow(0, 0, options.channels);
  const at::Tensor mean = shift.to(moments.scalar_type()) + from_shift;
  const at::Tensor variance =
      (moments.narrow(0, options.channels, options.channels) - from_shift.square()).clamp_min(0);
  if (count > 0) {
    const at::NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    const double momentum =
        options.momentum ? *options.momentum : 1.0 / num_batches_tracked.item<double>();
    running_mean.mul_(1 - momentum).add_(mean.to(running_mean.scalar_type()), momentum);
    running_var.mul_(1 - momentum)
        .add_((variance * (count / (count - 1))).to(running_var.scalar_type()), momentum);
  }
  const at::Tensor inverse = (variance + options.epsilon).rsqrt();
  const at::Tensor w = weight.defined() ? weight : at::ones_like(running_mean);
  const at::Tensor b = bias.defined() ? bias : at::zeros_like(running_mean);
  return Normalized::apply(x, mean, inverse, w, b);
}

}  // namespace muster
