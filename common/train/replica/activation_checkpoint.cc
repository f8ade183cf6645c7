#include "muster/activation_checkpoint.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "common/train/step/step_impl.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

// Saves the states of the random generators that a function may use, and restores them.
class RandomState {
 public:
  RandomState(c10::Device device, StepImpl* step) {
    generators_.push_back(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) generators_.push_back(at::globalContext().defaultGenerator(device));
    if (step != nullptr) generators_.push_back(step->Generator());
    for (at::Generator& generator : generators_) {
      std::lock_guard<std::mutex> lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }
  void Restore() {
    for (size_t i = 0; i < generators_.size(); ++i) {
      std::lock_guard<std::mutex> lock(generators_[i].mutex());
      generators_[i].set_state(states_[i]);
    }
  }

 private:
  std::vector<at::Generator> generators_;
  Tensors states_;
};

// While an object exists, this thread has the given autocast state. Casts of weights are not
// cached, because they would belong to a graph that is discarded.
class AutocastAs {
 public:
  AutocastAs(c10::DeviceType type, bool enabled, at::ScalarType to)
      : type_(type),
        was_enabled_(at::autocast::is_autocast_enabled(type)),
        was_type_(at::autocast::get_autocast_dtype(type)),
        was_caching_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(type, enabled);
    at::autocast::set_autocast_dtype(type, to);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastAs() {
    at::autocast::set_autocast_enabled(type_, was_enabled_);
    at::autocast::set_autocast_dtype(type_, was_type_);
    at::autocast::set_autocast_cache_enabled(was_caching_);
  }
  AutocastAs(const AutocastAs&) = delete;
  AutocastAs& operator=(const AutocastAs&) = delete;

 private:
  const c10::DeviceType type_;
  const bool was_enabled_;
  const at::ScalarType was_type_;
  const bool was_caching_;
};

Tensors Detached(const Tensors& inputs) {
  Tensors detached;
  for (const at::Tensor& input : inputs) {
    at::Tensor copy = input.detach();
    if (input.requires_grad()) copy.set_requires_grad(true);
    detached.push_back(copy);
  }
  return detached;
}

// Returns the parameters on which `output` depends: all leaves of its graph except `inputs`. Throws
// c10::Error if the graph has a node older than sequence number `first`.
Tensors Leaves(const at::Tensor& output, const Tensors& inputs, uint64_t first) {
  Tensors leaves;
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> todo = {output.grad_fn().get()};
  while (!todo.empty()) {
    torch::autograd::Node* node = todo.back();
    todo.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      const bool given = std::any_of(inputs.begin(), inputs.end(), [leaf](const at::Tensor& input) {
        return input.is_same(leaf->variable);
      });
      if (!given) leaves.push_back(leaf->variable);
      continue;
    }
    TORCH_CHECK(node->sequence_nr() >= first,
                "the function of activation_checkpoint uses a tensor that was computed before (by ",
                node->name(), "): give it as an input");
    for (const torch::autograd::Edge& edge : node->next_edges())
      todo.push_back(edge.function.get());
  }
  return leaves;
}

// Saves the program's buffers, and restores them in the destructor. Restoring does not increment
// their version counters, because a graph may have saved them, and most of them have not changed.
class BufferUndo {
 public:
  explicit BufferUndo(StepImpl* step) {
    if (step == nullptr) return;
    buffers_ = step->buffers();
    copies_ = Clone(buffers_);
  }
  ~BufferUndo() {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
  }
  BufferUndo(const BufferUndo&) = delete;
  BufferUndo& operator=(const BufferUndo&) = delete;

 private:
  Tensors buffers_, copies_;
};

class CheckpointBackward : public torch::autograd::Node {
 public:
  CheckpointBackward(Function function, const Tensors& inputs, StepImpl* step, c10::Device device)
      : function_(std::move(function)),
        device_(device),
        step_(step),
        random_(device, step),
        autocast_(at::autocast::is_autocast_enabled(device.type())),
        autocast_type_(at::autocast::get_autocast_dtype(device.type())) {
    if (step != nullptr) life_ = step->life();
    Save(inputs);
  }

  // Runs the function with the autocast state that the constructor saved.
  at::Tensor Call(const Tensors& inputs) {
    const StepImpl::Scope current(step_);
    const StepImpl::Repeated repeated(step_);
    const AutocastAs autocast(device_.type(), autocast_, autocast_type_);
    const at::AutoGradMode record(true);
    const size_t outputs = step_ != nullptr ? step_->collectives_->outputs().size() : 0;
    at::Tensor output = function_(inputs);
    if (step_ != nullptr) step_->collectives_->KeepOutputs(outputs);
    return output;
  }

  void Made(const at::Tensor& output, const Tensors& leaves) {
    Save(leaves);
    if (output.is_cpu() && output.is_floating_point()) {
      output_ = output.detach();
      version_ = output_._version();
    }
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "the backward pass of activation_checkpoint cannot be differentiated itself");
    TORCH_CHECK(step_ == nullptr || !life_.expired(),
                "activation_checkpoint ran again after its step was over");
    Tensors all;
    for (const torch::autograd::SavedVariable& saved : saved_) all.push_back(saved.unpack());
    const Tensors inputs = Detached({all.begin(), all.begin() + inputs_});
    const at::Tensor output = CallAgain(inputs);
    Tensors wanted;
    std::vector<size_t> places;
    for (size_t i = 0; i < all.size(); ++i) {
      const at::Tensor& variable = i < inputs.size() ? inputs[i] : all[i];
      if (!variable.requires_grad() || !task_should_compute_output(i)) continue;
      wanted.push_back(variable);
      places.push_back(i);
    }
    torch::autograd::variable_list result(all.size());
    if (wanted.empty()) return result;
    const at::Tensor gradient =
        gradients[0].defined() ? gradients[0] : input_metadata(0).zeros_like();
    const auto found = torch::autograd::grad({output}, wanted, {gradient}, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < wanted.size(); ++i) result[places[i]] = found[i];
    return result;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (torch::autograd::SavedVariable& saved : saved_) saved.reset_data();
    output_ = at::Tensor();
  }

 private:
  void Save(const Tensors& variables) {
    if (saved_.empty()) inputs_ = static_cast<int64_t>(variables.size());
    for (const at::Tensor& variable : variables) saved_.emplace_back(variable, /*is_output=*/false);
  }

  at::Tensor CallAgain(const Tensors& inputs) {
    const BufferUndo buffers(step_);
    RandomState now(device_, step_);
    random_.Restore();
    at::Tensor output = Call(inputs);
    now.Restore();
    CheckSame(output);
    return output;
  }

  // Throws c10::Error if the second run gave other values than the first. Checks only on the CPU,
  // where arithmetic is repeatable up to rounding.
  void CheckSame(const at::Tensor& again) const {
    if (!output_.defined() || output_._version() != version_ || output_.numel() == 0) return;
    const at::NoGradGuard no_grad;
    const at::Tensor difference = (again.detach() - output_).abs().max();
    TORCH_CHECK(
        !(difference > 0.01 * output_.abs().max()).item<bool>(),
        "the function of activation_checkpoint gave other values when it ran again: it must "
        "depend on its inputs, parameters and random numbers alone, and where CPU replicas "
        "share a process these come from Step::generator()");
  }

  const Function function_;
  const c10::Device device_;
  StepImpl* const step_;
  std::weak_ptr<const int> life_;
  RandomState random_;
  const bool autocast_;
  const at::ScalarType autocast_type_;
  std::vector<torch::autograd::SavedVariable> saved_;  // Inputs, then parameters.
  int64_t inputs_ = 0;
  at::Tensor output_;  // Output of the first run, for CheckSame. Set only on the CPU.
  int64_t version_ = 0;
};

}  // namespace

at::Tensor RunActivationCheckpoint(Function function, Tensors inputs) {
  TORCH_CHECK(!inputs.empty() && std::all_of(inputs.begin(), inputs.end(),
                                             [](const at::Tensor& t) { return t.defined(); }),
              "activation_checkpoint needs an input, and all of them defined");
  if (!at::GradMode::is_enabled()) return function(inputs);
  StepImpl* const step = StepImpl::Current();
  const uint64_t first = at::sequence_number::peek();
  const c10::Device device = step != nullptr ? step->replica_->device() : inputs[0].device();
  std::shared_ptr<CheckpointBackward> node(
      new CheckpointBackward(std::move(function), inputs, step, device),
      torch::autograd::deleteNode);
  const Tensors detached = Detached(inputs);
  at::Tensor output = node->Call(detached);
  TORCH_CHECK(output.defined(), "the function of activation_checkpoint gave an undefined tensor");
  if (!output.requires_grad()) return output;
  // The graph of this run only serves to find its parameters.
  const Tensors leaves = Leaves(output, detached, first);
  output = output.detach();
  node->Made(output, leaves);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs, leaves));
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace muster
