#include "common/train/loop_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/checkpoint/fields.h"
#include "common/train/embedding_state.h"
#include "common/train/precision.h"
#include "muster/json.h"

namespace muster {
namespace {

void Broadcast(const std::vector<at::Tensor>& tensors, c10::Device device,
               Communicator* communicator, int owner) {
  // One broadcast for each type: many small tensors would cost a round trip each.
  at::NoGradGuard no_grad;
  std::vector<at::ScalarType> types;
  for (const at::Tensor& t : tensors) {
    if (std::find(types.begin(), types.end(), t.scalar_type()) == types.end())
      types.push_back(t.scalar_type());
  }
  for (at::ScalarType type : types) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : tensors) {
      if (t.scalar_type() == type) flat.push_back(t.detach().reshape({-1}).to(device));
    }
    at::Tensor joined = at::cat(flat);
    ThrowIfError(communicator->Broadcast(BufferOf(joined), owner)->Wait());
    int64_t offset = 0;
    for (const at::Tensor& t : tensors) {
      if (t.scalar_type() != type) continue;
      t.detach().copy_(joined.narrow(0, offset, t.numel()).reshape(t.sizes()));
      offset += t.numel();
    }
  }
}

// What has names, as text: only the owner knows how many there are.
Json NamedToJson(const LoopState& state) {
  const auto object = [](const std::map<std::string, double>& values) {
    Json json = Json::object();
    for (const auto& [name, value] : values) json[name] = checkpoint::NumberToJson(value);
    return json;
  };
  Json passes = Json::object();
  for (const auto& [split, metrics] : state.last_passes) passes[split] = object(metrics);
  return {{"values", object(state.last_values)}, {"passes", std::move(passes)}};
}

void NamedFromJson(const Json& json, LoopState* state) {
  const auto read = [](const Json& object) {
    std::map<std::string, double> values;
    for (const auto& [name, value] : object.items())
      checkpoint::NumberFromJson(value, &values[name]);
    return values;
  };
  state->last_values = read(json.at("values"));
  state->last_passes.clear();
  for (const auto& [split, metrics] : json.at("passes").items())
    state->last_passes[split] = read(metrics);
}

void BroadcastNamed(c10::Device device, Communicator* communicator, int owner, LoopState* state) {
  std::string text;
  if (communicator->rank() == owner) text = Dump(NamedToJson(*state));
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  Broadcast({size}, device, communicator, owner);
  text.resize(static_cast<size_t>(*size.const_data_ptr<int64_t>()));
  const at::Tensor bytes =
      at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
  Broadcast({bytes}, device, communicator, owner);
  NamedFromJson(Json::parse(text), state);
}

// Every other field but the batch size, as numbers, in a fixed order and back. Counts are exact
// below 2^53.
template <typename Visit>
void VisitNumbers(LoopState* state, const Visit& visit) {
  const auto integer = [&visit](auto* value) {
    double number = static_cast<double>(*value);
    visit(&number);
    *value = static_cast<std::remove_pointer_t<decltype(value)>>(number);
  };
  integer(&state->steps);
  integer(&state->position.epoch);
  integer(&state->position.offset);
  integer(&state->examples);
  visit(&state->epoch_loss_sum);
  integer(&state->epoch_examples);
  for (double& sum : state->epoch_metric_sums) visit(&sum);
  integer(&state->validation_due);
  integer(&state->test_due);
  for (double& value : state->loss_scaler) visit(&value);
  visit(&state->last_loss);
  visit(&state->last_learning_rate);
  integer(&state->last_examples);
}

}  // namespace

LoopState InitialLoopState(const Job& job, const Replica& replica) {
  LoopState state;
  size_t sums = 0;
  for (const NamedMetric& metric : replica.metrics()) sums += metric.metric->width();
  state.epoch_metric_sums.resize(sums);
  state.loss_scaler = LossScaler(job.precision).state();
  return state;
}

void BroadcastBatchSize(c10::Device device, Communicator* communicator, int owner,
                        LoopState* state) {
  const at::Tensor size = at::full({1}, state->global_batch_size, at::kLong);
  Broadcast({size}, device, communicator, owner);
  state->global_batch_size = *size.const_data_ptr<int64_t>();
}

void BroadcastState(Replica* replica, Communicator* communicator, int owner, LoopState* state) {
  std::vector<double> numbers;
  VisitNumbers(state, [&numbers](double* number) { numbers.push_back(*number); });
  const at::Tensor host = at::tensor(numbers, at::kDouble);
  std::vector<at::Tensor> tensors = replica->replicated_state();
  tensors.push_back(host);
  Broadcast(tensors, replica->device(), communicator, owner);
  const double* next = host.const_data_ptr<double>();
  VisitNumbers(state, [&next](double* number) { *number = *next++; });
  BroadcastNamed(replica->device(), communicator, owner, state);
  BroadcastTables(replica, communicator, owner, state->steps);
}

}  // namespace muster
