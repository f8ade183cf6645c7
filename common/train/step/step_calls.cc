// A program's calls in a step, except minimize(). The objects that make up a step do the work.
#include <fmt/format.h>

#include <utility>

#include "common/train/step/step_impl.h"

namespace muster {

void StepImpl::AddLoss(const at::Tensor& loss, const OptimizerHandle* optimizer) {
  RefuseRepeated("add_loss");
  losses_.AddLoss(loss, optimizer);
}

void StepImpl::Regularize(const at::Tensor& loss, const OptimizerHandle* optimizer) {
  RefuseRepeated("regularize");
  losses_.Regularize(loss, optimizer);
}

void StepImpl::Report(const std::string& name, const at::Tensor& value, const at::Tensor& weights) {
  RefuseRepeated("report");
  control_.Report(name, value, weights, micro_examples_);
}

void StepImpl::UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target,
                            const at::Tensor& weights) {
  RefuseRepeated("update");
  control_.UpdateMetric(handle, output, target, weights);
}

StepCollectives& StepImpl::Collectives(const char* call) {
  if (gradients_.on_servers() || options_.for_servers) {
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
