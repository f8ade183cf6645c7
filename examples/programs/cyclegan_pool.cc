#include "cyclegan_pool.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace muster::nn {

PicturePools::PicturePools(int64_t size, const std::vector<int64_t>& shape) {
  std::vector<int64_t> all = {size};
  all.insert(all.end(), shape.begin(), shape.end());
  x_ = register_buffer("x", at::zeros(all));
  y_ = register_buffer("y", at::zeros(all));
  count_x_ = register_buffer("count_x", at::zeros({}, at::kLong));
  count_y_ = register_buffer("count_y", at::zeros({}, at::kLong));
}

std::pair<at::Tensor, at::Tensor> PicturePools::Exchange(const at::Tensor& x, const at::Tensor& y,
                                                         const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  const at::Tensor seen_x = ExchangeIn(x_, count_x_, x, generator);
  return {seen_x, ExchangeIn(y_, count_y_, y, generator)};
}

at::Tensor PicturePools::ExchangeIn(const at::Tensor& kept, const at::Tensor& count,
                                    const at::Tensor& pictures, const at::Generator& generator) {
  const int64_t size = kept.size(0), n = pictures.size(0);
  at::Tensor seen = pictures.to(kept.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  // Draws on the replica's device, because the generator is there. Draws all numbers at once,
  // because each read by the host waits for the device.
  const at::Tensor draws = at::rand({n, 2}, generator, kept.options()).to(at::kCPU, at::kDouble);
  int64_t filled = count.item<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const double* draw = draws.const_data_ptr<double>() + 2 * i;
    if (filled < size) {
      kept[filled++].copy_(seen[i]);
    } else if (draw[0] > 0.5) {
      const auto index = static_cast<int64_t>(draw[1] * static_cast<double>(size));
      const at::Tensor place = kept[std::min(index, size - 1)];
      const at::Tensor older = place.clone();
      place.copy_(seen[i]);
      seen[i].copy_(older);
    }
  }
  count.fill_(filled);
  return seen;
}

}  // namespace muster::nn
