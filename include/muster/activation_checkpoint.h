// Activation checkpointing saves memory: the forward pass drops activations, and the backward pass
// computes them again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace muster {

at::Tensor RunActivationCheckpoint(
    std::function<at::Tensor(const std::vector<at::Tensor>&)> function,
    std::vector<at::Tensor> inputs);

// Returns function(inputs...). The activations that the backward pass needs are not kept: the
// backward pass runs the function a second time. All parameters that the function uses get
// gradients.
//
//   h = muster::activation_checkpoint([this](const at::Tensor& x) { return block_->forward(x); },
//   h);
//
// The autograd graph stores the function until the backward pass, so the function must not capture
// local variables by reference. The second run must return the same result as the first run. The
// function may therefore depend only on its inputs, on parameters and buffers, and on random
// numbers. The state of random generators is restored before the second run. On the CPU, the
// function must draw random numbers from Step::generator(), because all CPU replicas of a process
// share LibTorch's default generator. The second run does not change buffers. If the function uses
// a tensor with autograd history, this tensor must be one of `inputs`. The function may call
// Step::all_reduce and Step::all_gather. The function must not call lookup, minimize, add_loss,
// regularize, report, update or on_commit of Step: these calls throw an exception.
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
