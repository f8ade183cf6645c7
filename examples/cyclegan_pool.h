// Pools of translated pictures: Shrivastava et al., Learning from Simulated and Unsupervised Images
// through Adversarial Training (2017). Buffers, so that they are saved, and undone with a step that
// is given up; each replica has its own.
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
  // `shape`: of one picture, for both domains.
  PicturePools(int64_t size, const std::vector<int64_t>& shape);
  // Pictures [batch, ...] of both domains, without gradients, to as many that discriminators see
  // instead. While a pool has room it keeps each picture and gives it back; then, for one picture
  // in two, it gives one of its own and keeps the new one in its place.
  std::pair<at::Tensor, at::Tensor> Exchange(const at::Tensor& x, const at::Tensor& y,
                                             const at::Generator& generator);

 private:
  static at::Tensor ExchangeIn(const at::Tensor& kept, const at::Tensor& count,
                               const at::Tensor& pictures, const at::Generator& generator);
  at::Tensor x_, y_, count_x_, count_y_;
};

}  // namespace muster::nn
