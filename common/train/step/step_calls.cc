// A program's calls in a step, except those about losses: random numbers, metrics, collective
// operations, tables and summaries.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "common/base/hash.h"
#include "common/train/step/step_impl.h"

namespace muster {

uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts) {
  for (const uint64_t part : parts) seed = SplitMix64(seed + part);
  return seed;
}

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

void StepImpl::UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target,
                            const at::Tensor& weights) {
  RefuseRepeated("update");
  at::NoGradGuard no_grad;
  const Metric& metric = *replica_->metrics().at(handle.index).metric;
  const at::Tensor of_target = target.defined() ? target.detach() : target;
  Add(&increments_[handle.index],
      weights.defined() ? metric.WeightedIncrement(output.detach(), of_target, weights.detach())
                        : metric.Increment(output.detach(), of_target));
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
  if (MustNotDraw()) undrawn_ = generator.get_state();
}

bool StepImpl::MustNotDraw() const {
  return job_.deterministic && options_.first_local && options_.local_replicas > 1 &&
         replica_->device().is_cpu();
}

absl::Status StepImpl::CheckNothingDrawn() const {
  if (!MustNotDraw()) return absl::OkStatus();
  at::Generator generator = at::globalContext().defaultGenerator(replica_->device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  if (at::equal(generator.get_state(), undrawn_)) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "deterministic is true, but train_step draws from LibTorch's default generator (dropout, "
      "rand), which the {} CPU replicas of this process share, in any order: draw from "
      "step.generator(), or start a process for each replica",
      options_.local_replicas));
}

bool StepImpl::on_servers() const {
  return !replica_->optimizers().empty() && replica_->optimizers().front().gradients->updates();
}

StepCollectives& StepImpl::Collectives(const char* call) {
  if (on_servers() || options_.for_servers) {
    throw StatusError(ProgramError(
        fmt::format("{} was called, but workers of a parameter-server job do not meet: use a "
                    "strategy of replicas, such as multi_worker_mirrored",
                    call)));
  }
  return *collectives_;
}

namespace {
thread_local StepImpl* current_step = nullptr;
}  // namespace

void StepImpl::RefuseRepeated(const char* call) const {
  if (repeated_ == 0) return;
  throw StatusError(ProgramError(
      fmt::format("{} was called in the function of activation_checkpoint, which runs twice: call "
                  "it outside",
                  call)));
}

StepImpl* StepImpl::Current() { return current_step; }
StepImpl::Scope::Scope(StepImpl* step) : before_(std::exchange(current_step, step)) {}
StepImpl::Scope::~Scope() { current_step = before_; }

// ---- Step forwards.

int64_t Step::number() const { return impl_->plan_.steps_done + 1; }
int64_t Step::epoch() const { return impl_->plan_.epoch; }
int Step::replica() const { return impl_->replica(); }
int Step::num_replicas() const { return impl_->num_replicas(); }
at::Device Step::device() const { return impl_->replica_->device(); }
at::Generator Step::generator() { return impl_->Generator(); }
at::Tensor Step::lookup(EmbeddingHandle table, const at::Tensor& keys) {
  return lookup(std::vector<TableKeys>{{table, keys}})[0];
}
at::Tensor Step::lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling) {
  return lookup(std::vector<TableBags>{{table, bags, pooling}})[0];
}
std::vector<at::Tensor> Step::lookup(const std::vector<TableKeys>& keys) {
  impl_->RefuseRepeated("lookup");
  return impl_->embeddings_.Lookup(keys);
}
std::vector<at::Tensor> Step::lookup(const std::vector<TableBags>& bags) {
  impl_->RefuseRepeated("lookup");
  return impl_->embeddings_.Lookup(bags);
}
void Step::minimize(OptimizerHandle optimizer, const at::Tensor& loss, const at::Tensor& weights) {
  impl_->Minimize({{optimizer, loss, weights}});
}
void Step::minimize(const std::vector<Objective>& objectives) { impl_->Minimize(objectives); }
void Step::add_loss(const at::Tensor& per_example_loss) {
  impl_->AddLoss(per_example_loss, nullptr);
}
void Step::add_loss(const at::Tensor& per_example_loss, OptimizerHandle optimizer) {
  impl_->AddLoss(per_example_loss, &optimizer);
}
void Step::regularize(const at::Tensor& scalar_loss) { impl_->Regularize(scalar_loss, nullptr); }
void Step::regularize(const at::Tensor& scalar_loss, OptimizerHandle optimizer) {
  impl_->Regularize(scalar_loss, &optimizer);
}
void Step::report(const std::string& name, const at::Tensor& value, const at::Tensor& weights) {
  impl_->Report(name, value, weights);
}
void Step::report(const Nested& values, const at::Tensor& weights) {
  values.ForEach([&](const std::string& name, const at::Tensor& value) {
    impl_->Report(name, value, weights);
  });
}
void Step::update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target,
                  const at::Tensor& weights) {
  impl_->UpdateMetric(metric, output, target, weights);
}
at::Tensor Step::all_reduce(const at::Tensor& value, ReduceOp op) {
  return impl_->Collectives("all_reduce").AllReduce(value, op);
}
at::Tensor Step::all_gather(const at::Tensor& value) {
  return impl_->Collectives("all_gather").AllGather(value);
}
bool Step::wants_summary() const { return impl_->plan_.summary; }
void Step::image(const std::string& name, const at::Tensor& images) {
  impl_->summary_.Image(impl_->plan_.summary, name, images);
}
void Step::histogram(const std::string& name, const at::Tensor& values) {
  impl_->summary_.Histogram(impl_->plan_.summary, name, values);
}
void Step::on_commit(std::function<void()> action) {
  impl_->RefuseRepeated("on_commit");
  impl_->on_commit_.push_back(std::move(action));
}

}  // namespace muster
