// Pools of translated pictures: Shrivastava et al., Learning from Simulated and Unsupervised Images
// through Adversarial Training (2017). The pools are buffers of this module. Checkpoints therefore
// save them, and a step that is rolled back restores them. Each replica has its own pools.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace muster::nn {

class PicturePools : public torch::nn::Module {
 public:
  // `size` is the number of pictures of a pool. `shape` is the shape of one picture, of both
  // domains.
  PicturePools(int64_t size, const std::vector<int64_t>& shape);
  // Takes pictures [batch, ...] of both domains. Returns the same number of pictures, without
  // gradients, for the discriminators. Until a pool is full, the pool stores and returns each new
  // picture. Then, with probability 1/2, the pool returns a stored picture and replaces it by the
  // new one.
  std::pair<at::Tensor, at::Tensor> Exchange(const at::Tensor& x, const at::Tensor& y,
                                             const at::Generator& generator);

 private:
  static at::Tensor ExchangeIn(const at::Tensor& kept, const at::Tensor& count,
                               const at::Tensor& pictures, const at::Generator& generator);
  at::Tensor x_, y_, count_x_, count_y_;
};

}  // namespace muster::nn
