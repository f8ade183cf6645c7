// Activation checkpointing: memory for time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace muster {

at::Tensor RunActivationCheckpoint(
    std::function<at::Tensor(const std::vector<at::Tensor>&)> function,
    std::vector<at::Tensor> inputs);

// What function(inputs...) gives, without keeping what its backward pass needs: that pass runs the
// function again. All parameters that it uses get their gradients.
//
//   h = muster::activation_checkpoint([this](const at::Tensor& x) { return block_->forward(x); },
//   h);
//
// The function is kept until the backward pass, so that it captures no local variable by reference.
// It must give the same when it runs again: it depends on its inputs, on parameters and buffers,
// and on random numbers (generators are put back; several CPU replicas of one process share
// LibTorch's default one, so that it draws from Step::generator() there). What it does to buffers
// counts once. Every tensor that it uses and that has a history is an input. Calls of Step in it
// are refused, but for all_reduce and all_gather.
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
