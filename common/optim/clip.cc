#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "common/optim/optimizer.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

// Returns the sum of squares, computed in double precision and in blocks of a fixed size.
// LibTorch's norm is not used, because its last bits depend on the number of threads. Replicas with
// different thread counts would diverge.
template <typename T>
double SumOfSquares(const T* values, int64_t count) {
  constexpr int64_t kBlock = 16384, kLanes = 8;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> partial(blocks);
  at::parallel_for(0, blocks, /*grain_size=*/4, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const T* block = values + b * kBlock;
      const int64_t size = std::min(kBlock, count - b * kBlock);
      double lanes[kLanes] = {};
      int64_t i = 0;
      for (; i + kLanes <= size; i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const double value = block[i + lane];
          lanes[lane] += value * value;
        }
      }
      for (; i < size; ++i) lanes[0] += static_cast<double>(block[i]) * block[i];
      for (const double lane : lanes) partial[b] += lane;
    }
  });
  double sum = 0;
  for (const double block : partial) sum += block;
  return sum;
}

double SumOfSquares(const at::Tensor& gradient) {
  if (gradient.numel() == 0) return 0;
  at::Tensor dense = gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous();
  if (dense.scalar_type() == at::kDouble) {
    return SumOfSquares(dense.const_data_ptr<double>(), dense.numel());
  }
  if (dense.scalar_type() != at::kFloat) dense = dense.to(at::kFloat);
  return SumOfSquares(dense.const_data_ptr<float>(), dense.numel());
}

// Returns the L2 norm of each gradient as a scalar tensor, in float32 or wider.
Tensors Norms(const Tensors& gradients) {
  if (!gradients[0].is_cpu()) {
    const bool any_double = std::any_of(gradients.begin(), gradients.end(), [](const auto& tensor) {
      return tensor.scalar_type() == at::kDouble;
    });
    return at::_foreach_norm(gradients, 2, any_double ? at::kDouble : at::kFloat);
  }
  Tensors norms;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(at::scalar_tensor(std::sqrt(SumOfSquares(gradient)), at::kDouble));
  }
  return norms;
}

// Returns the factor for gradients with L2 norm `norm`: limit / max(norm, limit). If the norm is
// NaN, returns NaN.
at::Tensor Factor(const at::Tensor& norm, double limit) {
  return at::clamp_min(norm, limit).reciprocal_().mul_(limit);
}

Tensors Defined(const Tensors& all) {
  Tensors gradients;
  for (const at::Tensor& gradient : all) {
    if (gradient.defined()) gradients.push_back(gradient);
  }
  return gradients;
}

}  // namespace

double GradientNorm(const Tensors& all) {
  const at::NoGradGuard no_grad;
  const Tensors gradients = Defined(all);
  if (gradients.empty()) return 0;
  return at::linalg_vector_norm(at::stack(Norms(gradients))).item<double>();
}

void ClipGradients(const Tensors& all, const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  const Tensors gradients = Defined(all);
  if (gradients.empty()) return;
  if (options.clipvalue > 0) {
    at::_foreach_clamp_min_(gradients, -options.clipvalue);
    at::_foreach_clamp_max_(gradients, options.clipvalue);
  }
  if (options.clipnorm > 0) {
    Tensors factors;
    for (const at::Tensor& norm : Norms(gradients)) {
      factors.push_back(Factor(norm, options.clipnorm));
    }
    at::_foreach_mul_(gradients, factors);
  }
  if (options.global_clipnorm > 0) {
    const at::Tensor norm = at::linalg_vector_norm(at::stack(Norms(gradients)));
    at::_foreach_mul_(gradients, Factor(norm, options.global_clipnorm));
  }
}

}  // namespace muster
