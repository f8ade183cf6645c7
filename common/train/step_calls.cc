// What a program calls in a step: losses, backward passes, reports, randomness.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "common/base/hash.h"
#include "common/train/step_impl.h"

namespace muster {

uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts) {
  for (const uint64_t part : parts) seed = SplitMix64(seed + part);
  return seed;
}

namespace {

// A program may freeze parameters after build(); the others' flags say that nobody used them.
std::vector<at::Tensor> Trainable(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> trainable;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(trainable),
               [](const at::Tensor& p) { return p.requires_grad(); });
  return trainable;
}

}  // namespace

std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

void CopyBack(const std::vector<at::Tensor>& copies, const std::vector<at::Tensor>& tensors) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(copies[i]);
}

void StepImpl::AddLoss(const at::Tensor& loss) {
  CheckPerExample(loss, "add_loss");
  extra_losses_.push_back(loss);
}

void StepImpl::Regularize(const at::Tensor& loss) {
  if (loss.numel() != 1)
    throw StatusError(ProgramError(
        fmt::format("regularize needs a scalar, got shape [{}]", fmt::join(loss.sizes(), ", "))));
  regularizers_.push_back(loss.reshape({}));
}

void StepImpl::Report(const std::string& name, const at::Tensor& value) {
  CheckPerExample(value, fmt::format("report(\"{}\")", name));
  if (name == "loss" || name == "learning_rate" || name == "examples_per_second") {
    throw StatusError(
        ProgramError(fmt::format("report(\"{}\"): that name is the loop's own", name)));
  }
  Add(&values_[name], value.detach().sum(at::kDouble) * LossScale());
}

void StepImpl::UpdateMetric(MetricHandle handle, const at::Tensor& output,
                            const at::Tensor& target) {
  at::NoGradGuard no_grad;
  const Metric& metric = *replica_->metrics().at(handle.index).metric;
  Add(&increments_[handle.index],
      metric.Increment(output.detach(), target.defined() ? target.detach() : target));
}

double StepImpl::LossScale() const {
  switch (job_.loss_reduction) {
    case LossReduction::kGlobal:
      return 1.0 / static_cast<double>(std::max<int64_t>(1, plan_.global_examples));
    case LossReduction::kNominal:
      return 1.0 / static_cast<double>(options_.global_batch_size);
    case LossReduction::kLocalMean:
      return 1.0 / (static_cast<double>(num_replicas()) *
                    static_cast<double>(std::max<int64_t>(1, local_examples_)));
  }
  return 1.0;
}

void StepImpl::CheckPerExample(const at::Tensor& value, const std::string& what) const {
  if (value.defined() && value.dim() == 1 && value.size(0) == micro_examples_) return;
  throw StatusError(ProgramError(fmt::format(
      "{} needs one value for each example, shape [{}], and got shape [{}]: do not reduce over the "
      "batch",
      what, micro_examples_,
      value.defined() ? fmt::format("{}", fmt::join(value.sizes(), ", ")) : "undefined")));
}

at::Generator StepImpl::Generator() {
  if (!generator_.defined()) {
    at::Generator shared = at::globalContext().defaultGenerator(replica_->device());
    std::lock_guard<std::mutex> lock(shared.mutex());
    generator_ = shared.clone();
  }
  if (!generator_seeded_) generator_.set_current_seed(ReplicaSeed(1));
  generator_seeded_ = true;
  return generator_;
}

void StepImpl::SeedDefaultGenerator() {
  if (replica_->device().is_cpu() && !options_.first_local) return;
  at::Generator generator = at::globalContext().defaultGenerator(replica_->device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(ReplicaSeed(0));
}

at::Tensor StepImpl::Objective(const at::Tensor& per_example_loss) {
  at::Tensor per_example = per_example_loss;
  for (const at::Tensor& extra : extra_losses_) per_example = per_example + extra;
  at::Tensor objective =
      per_example
          .to(at::kFloat == per_example.scalar_type() || per_example.scalar_type() == at::kDouble
                  ? per_example.scalar_type()
                  : at::kFloat)
          .sum() *
      LossScale();
  // Reported in double precision up to the reduction: a float32 sum over a large batch loses
  // digits.
  at::Tensor reported = per_example.detach().sum(at::kDouble) * LossScale();
  for (const at::Tensor& regularizer : regularizers_) {
    const at::Tensor share = regularizer / (static_cast<double>(num_replicas()) * micro_batches_);
    objective = objective + share;
    reported = reported + share.detach().to(at::kDouble);
  }
  extra_losses_.clear();
  regularizers_.clear();
  Add(&objective_sum_, reported);
  return objective;
}

void StepImpl::Minimize(OptimizerHandle handle, const at::Tensor& per_example_loss) {
  if (handle.index < 0 || handle.index >= static_cast<int>(replica_->optimizers().size())) {
    throw StatusError(
        ProgramError("minimize was called with an optimizer that build() did not declare"));
  }
  CheckPerExample(per_example_loss, "the loss");
  if (!immediate_ && !minimized_.empty() &&
      replica_->optimizers()[minimized_.back()].gradients->launched()) {
    SwitchToImmediate();
  }
  if (!immediate_ && !minimized_.empty()) {
    start_again_ = true;
    throw StatusError(
        ProgramError("minimize was called a second time in this step"));  // Run catches it
  }
  if (micro_batches_ > 1 && std::count(minimized_.begin(), minimized_.end(), handle.index) > 0) {
    throw StatusError(
        ProgramError(fmt::format("optimizer \"{}\" is minimized twice in one micro-batch: "
                                 "accumulate_steps above 1 cannot say which calls belong together",
                                 replica_->optimizers()[handle.index].name)));
  }
  minimized_.push_back(handle.index);
  shape_ += fmt::format("m{};", handle.index);
  const at::Tensor objective = Objective(per_example_loss);
  if (!objective.requires_grad())
    throw StatusError(ProgramError("the loss does not depend on any parameter"));
  Backward(handle.index, objective);
  if (micro_batch_ + 1 < micro_batches_) return;
  if (!immediate_) {
    deferred_ = handle.index;
    return;
  }
  if (!state_saved_ && !replica_->optimizers()[handle.index].gradients->updates()) {
    const auto state = replica_->state();
    if (state_undo_.empty()) {
      state_undo_ = Clone(state);
    } else {
      CopyBack(state, state_undo_);
    }
    state_saved_ = true;
  }
  at::Tensor none;
  ThrowIfError(Reduce(handle.index, &none));
  ThrowIfError(Update(handle.index));
  // Casts of weights are cached by tensor, not by version: later losses of this step must see the
  // update.
  if (job_.precision != Precision::kFloat32) at::autocast::clear_cache();
}

void StepImpl::SwitchToImmediate() {
  immediate_ = true;
  at::Tensor none;
  ThrowIfError(Reduce(std::exchange(deferred_, -1), &none));
}

void StepImpl::Backward(int index, const at::Tensor& objective) {
  NamedOptimizer& optimizer = replica_->optimizers()[index];
  const bool first = micro_batch_ == 0, last = micro_batch_ + 1 == micro_batches_;
  // With one optimizer, the way a program minimizes is that of its first step, but for odd ones.
  const bool early = immediate_ || (settled_ && replica_->optimizers().size() == 1);
  if (first) optimizer.gradients->Begin({optimizer.schedule->At(plan_.steps_done), early});
  optimizer.gradients->BeginBackward(last);
  replica_->set_active(index);
  const at::Tensor seed = at::full_like(objective, scaler_.scale());
  std::vector<at::Tensor> inputs = Trainable(optimizer.rule->parameters());
  embeddings_.AddLeaves(&inputs);
  try {
    torch::autograd::backward({objective}, {seed}, /*retain_graph=*/immediate_,
                              /*create_graph=*/false, inputs);
  } catch (...) {
    replica_->set_active(-1);
    throw;
  }
  replica_->set_active(-1);
  optimizer.gradients->EndBackward();
  embeddings_.Collect();
}

// ---- Step forwards.

int64_t Step::number() const { return impl_->plan_.steps_done + 1; }
int64_t Step::epoch() const { return impl_->plan_.epoch; }
int Step::replica() const { return impl_->replica(); }
int Step::num_replicas() const { return impl_->num_replicas(); }
at::Device Step::device() const { return impl_->replica_->device(); }
at::Generator Step::generator() { return impl_->Generator(); }
at::Tensor Step::lookup(EmbeddingHandle table, const at::Tensor& keys) {
  return impl_->embeddings_.Lookup(table, keys);
}
void Step::minimize(OptimizerHandle optimizer, const at::Tensor& per_example_loss) {
  impl_->Minimize(optimizer, per_example_loss);
}
void Step::add_loss(const at::Tensor& per_example_loss) { impl_->AddLoss(per_example_loss); }
void Step::regularize(const at::Tensor& scalar_loss) { impl_->Regularize(scalar_loss); }
void Step::report(const std::string& name, const at::Tensor& value) { impl_->Report(name, value); }
void Step::update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target) {
  impl_->UpdateMetric(metric, output, target);
}
bool Step::wants_summary() const { return impl_->plan_.summary; }
void Step::image(const std::string& name, const at::Tensor& images) {
  impl_->summary_.Image(impl_->plan_.summary, name, images);
}
void Step::histogram(const std::string& name, const at::Tensor& values) {
  impl_->summary_.Histogram(impl_->plan_.summary, name, values);
}
void Step::on_commit(std::function<void()> action) {
  impl_->on_commit_.push_back(std::move(action));
}

}  // namespace muster
