// Pools of translated pictures: Shrivastava et al., Learning from Simulated and Unsupervised Images
// through Adversarial Training (2017). A pool keeps pictures that a generator made in earlier
// steps. The pools are buffers of this module. Checkpoints therefore save the pools, and a failed
// step does not change the pools. Each replica (device) has its own pools.
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
  // `size` is the number of pictures in each of the two pools. `shape` is the shape of one picture,
  // which is the same for both domains.
  PicturePools(int64_t size, const std::vector<int64_t>& shape);
  // Takes pictures [batch, ...] of both domains, and returns the same number of pictures for the
  // discriminators. The results have no gradients. A pool that is not full stores and returns each
  // new picture. A full pool returns the new picture with probability 1/2. Otherwise, the pool
  // returns a random stored picture and replaces that picture with the new picture.
  std::pair<at::Tensor, at::Tensor> Exchange(const at::Tensor& x, const at::Tensor& y,
                                             const at::Generator& generator);

 private:
  static at::Tensor ExchangeIn(const at::Tensor& kept, const at::Tensor& count,
                               const at::Tensor& pictures, const at::Generator& generator);
  at::Tensor x_, y_, count_x_, count_y_;
};

}  // namespace muster::nn
