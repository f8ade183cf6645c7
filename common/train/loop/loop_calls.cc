// The calls of a program's Loop, except steps and passes.
#include "common/train/loop/loop.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/replica/replica_values.h"

namespace muster {

StepOutcome OutcomeOf(StepResult result, int64_t number, Nested results) {
  StepOutcome outcome;
  outcome.number = number;
  outcome.loss = result.loss;
  outcome.learning_rate = result.learning_rate;
  outcome.examples = result.examples;
  outcome.values = std::move(result.values);
  outcome.results = PerReplica(std::move(results));
  return outcome;
}

Nested Detached(const Nested& value) {
  return value.Map([](const at::Tensor& t) { return t.defined() ? t.detach() : t; });
}

Nested LoopImpl::Call(const std::function<Nested()>& function) {
  AutocastScope autocast(context_.job.precision, replica_->device());
  return Detached(function());
}

Nested LoopImpl::Reduce(ReduceOp op, const Nested& value, std::optional<int64_t> axis) {
  return ReduceOverReplicas(communicator_, replica_->device(), op, value, axis);
}

Nested LoopImpl::Gather(const Nested& value, int64_t axis) {
  return GatherOverReplicas(communicator_, replica_->device(), value, axis);
}

std::vector<Nested> LoopImpl::LocalResults(const Nested& value) {
  // Passes copies, because other replicas may read them while this one changes its own tensors.
  auto values = context_.exchange->Exchange(
      loop_.local_index, value.Map([](const at::Tensor& t) { return t.detach().clone(); }));
  if (!values.ok()) throw StatusError(values.status());
  return *std::move(values);
}

// ---- Loop forwards.

int Loop::replica() const { return backend_->context().replica; }
int Loop::num_replicas() const { return backend_->context().num_replicas; }
at::Device Loop::device() const { return backend_->context().device; }
void Loop::fit() { backend_->Fit(); }
bool Loop::next(data::Batch* batch, int64_t steps) { return backend_->Next(batch, steps); }
bool Loop::next(DatasetHandle dataset, data::Batch* batch) {
  return backend_->NextOf(dataset, batch);
}
int64_t Loop::steps_left() const { return backend_->steps_left(); }
StepOutcome Loop::RunStep(const std::function<Nested(Step&, const data::Batch&)>& body) {
  return backend_->RunStep(body);
}
PerReplica Loop::Call(const std::function<Nested()>& function) {
  return PerReplica(backend_->Call(function));
}
PerReplica Loop::values_from_function(
    const std::function<Nested(const ReplicaContext&)>& function) {
  return PerReplica(Detached(function(backend_->context())));
}
std::map<std::string, double> Loop::evaluate(Split split) { return backend_->Evaluate(split); }
void Loop::finish() { backend_->Finish(); }
Nested Loop::reduce(ReduceOp op, const PerReplica& value, std::optional<int64_t> axis) {
  return backend_->Reduce(op, value.local(), axis);
}
Nested Loop::gather(const PerReplica& value, int64_t axis) {
  return backend_->Gather(value.local(), axis);
}
std::vector<Nested> Loop::local_results(const PerReplica& value) {
  return backend_->LocalResults(value.local());
}
at::Tensor Loop::reduce_sum(const at::Tensor& value) {
  return backend_->Reduce(ReduceOp::kSum, value, std::nullopt).tensor();
}
at::Tensor Loop::reduce_mean(const at::Tensor& value) {
  return backend_->Reduce(ReduceOp::kMean, value, std::nullopt).tensor();
}
at::Tensor Loop::gather(const at::Tensor& value) { return backend_->Gather(value, 0).tensor(); }
std::vector<at::Tensor> Loop::local_results(const at::Tensor& value) {
  std::vector<at::Tensor> tensors;
  for (const Nested& local : backend_->LocalResults(value)) tensors.push_back(local.tensor());
  return tensors;
}
int64_t Loop::steps() const { return backend_->steps(); }
int64_t Loop::epoch() const { return backend_->epoch(); }
bool Loop::epoch_begins() const { return backend_->epoch_begins(); }

}  // namespace muster
