// Activation checkpointing saves memory: the backward pass computes activations a second time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace muster {

at::Tensor RunActivationCheckpoint(
    std::function<at::Tensor(const std::vector<at::Tensor>&)> function,
    std::vector<at::Tensor> inputs);

// Returns function(inputs...) without keeping the activations that its backward pass needs. The
// backward pass runs the function again. All parameters that the function uses get their gradients.
//
//   h = muster::activation_checkpoint([this](const at::Tensor& x) { return block_->forward(x); },
//   h);
//
// The function is kept until the backward pass, so it must not capture local variables by
// reference. The second run must return the same result as the first. The function may therefore
// depend only on its inputs, on parameters and buffers, and on random numbers. The state of random
// generators is restored before the second run. CPU replicas of one process share LibTorch's
// default generator, so on the CPU the function must draw from Step::generator(). The second run
// does not change buffers again. Every tensor with autograd history that the function uses must be
// one of its inputs. The function may call Step::all_reduce and Step::all_gather. Other calls of
// Step throw an exception.
template <typename Function, typename... Inputs>
at::Tensor activation_checkpoint(Function function, const Inputs&... inputs) {
  return RunActivationCheckpoint(
      [function = std::move(function)](const std::vector<at::Tensor>& all) {
        return [&]<size_t... I>(std::index_sequence<I...>) { return function(all[I]...); }
        (std::index_sequence_for<Inputs...>());
      },
      {inputs...});
}

}  // namespace muster
