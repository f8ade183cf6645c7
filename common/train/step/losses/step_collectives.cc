#include "common/train/step/losses/step_collectives.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "common/train/replica/replica.h"

namespace muster {
namespace {

class CollectiveBackward : public torch::autograd::Node {
 public:
  explicit CollectiveBackward(std::function<at::Tensor(const at::Tensor&)> backward)
      : backward_(std::move(backward)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    // Runs the operation even without a gradient, because other replicas may have one.
    return {backward_(gradients[0].defined() ? gradients[0] : input_metadata(0).zeros_like())};
  }

 private:
  const std::function<at::Tensor(const at::Tensor&)> backward_;
};

}  // namespace

void StepCollectives::Begin() {
  open_ = true;
  used_ = false;
  outputs_.clear();
}

void StepCollectives::End() {
  open_ = false;
  outputs_.clear();
}

void StepCollectives::Check(const at::Tensor& value, const char* call) {
  if (!open_) {
    throw StatusError(ProgramError(fmt::format(
        "{} of a step ran after that step was over: what it gave must not outlive the step",
        call)));
  }
  if (!value.defined())
    throw StatusError(ProgramError(fmt::format("{} was called with an undefined tensor", call)));
  used_ = true;
}

// Records `output` in the graph as a function of `input`.
at::Tensor StepCollectives::Recorded(const at::Tensor& input, at::Tensor output,
                                     std::function<at::Tensor(const at::Tensor&)> backward) {
  if (!at::GradMode::is_enabled() || !input.requires_grad()) return output;
  std::shared_ptr<CollectiveBackward> node(new CollectiveBackward(std::move(backward)),
                                           torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(output, node);
  outputs_.push_back(output);
  return output;
}

void StepCollectives::Sum(at::Tensor* values) {
  const at::NoGradGuard no_grad;
  if (communicator_->size() == 1) return;
  ThrowIfError(communicator_->AllReduce(BufferOf(*values), ReduceOp::kSum)->Wait());
}

at::Tensor StepCollectives::AllReduce(const at::Tensor& value, ReduceOp op) {
  Check(value, "all_reduce");
  at::Tensor output;
  {
    const at::NoGradGuard no_grad;
    output = value.detach().clone(at::MemoryFormat::Contiguous);
    if (communicator_->size() > 1 && output.numel() > 0)
      ThrowIfError(communicator_->AllReduce(BufferOf(output), op)->Wait());
  }
  if (op == ReduceOp::kMax) return output;
  return Recorded(value, output, [self = shared_from_this(), op](const at::Tensor& gradient) {
    return self->AllReduce(gradient, op);
  });
}

at::Tensor StepCollectives::AllGather(const at::Tensor& value) {
  Check(value, "all_gather");
  if (value.dim() == 0) return AllGather(value.reshape({1}));
  const int replicas = communicator_->size();
  const int64_t mine = value.size(0);
  int64_t before = 0;
  at::Tensor output;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor part = value.detach().contiguous();
    std::vector<int64_t> sizes(replicas, mine);
    if (replicas > 1) {
      const at::Tensor send =
          at::full({1}, mine, at::TensorOptions().dtype(at::kLong)).to(value.device());
      const at::Tensor all = at::empty({replicas}, send.options());
      ThrowIfError(communicator_->AllGather(BufferOf(send), BufferOf(all))->Wait());
      const at::Tensor host = all.to(at::kCPU);
      std::copy_n(host.const_data_ptr<int64_t>(), replicas, sizes.begin());
    }
    for (int r = 0; r < communicator_->rank(); ++r) before += sizes[r];
    const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
    if (replicas == 1 || longest == 0) {
      output = part.clone();
    } else {
      // An all-gather needs equal parts, so shorter parts are padded.
      std::vector<int64_t> shape = part.sizes().vec();
      shape[0] = longest;
      at::Tensor padded = at::zeros(shape, part.options());
      padded.narrow(0, 0, mine).copy_(part);
      shape.insert(shape.begin(), replicas);
      const at::Tensor all = at::empty(shape, part.options());
      if (padded.numel() > 0)
        ThrowIfError(communicator_->AllGather(BufferOf(padded), BufferOf(all))->Wait());
      std::vector<at::Tensor> parts;
      for (int r = 0; r < replicas; ++r) parts.push_back(all[r].narrow(0, 0, sizes[r]));
      output = at::cat(parts);
    }
  }
  return Recorded(value, output,
                  [self = shared_from_this(), before, mine](const at::Tensor& gradient) {
                    return self->AllReduce(gradient, ReduceOp::kSum).narrow(0, before, mine);
                  });
}

}  // namespace muster
