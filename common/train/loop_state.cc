#include "common/train/loop_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "common/checkpoint/fields.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/embedding_state.h"
#include "common/train/precision.h"
#include "muster/json.h"

namespace muster {
namespace {

// Small tensors of one type on their way together: each alone would cost a round trip.
class Joined {
 public:
  Joined(c10::Device device, Communicator* communicator, int owner, int64_t piece_bytes)
      : device_(device), communicator_(communicator), owner_(owner), piece_bytes_(piece_bytes) {}

  void Add(const at::Tensor& tensor) {
    if (bytes_ + static_cast<int64_t>(tensor.nbytes()) > piece_bytes_) Send();
    tensors_.push_back(tensor);
    bytes_ += static_cast<int64_t>(tensor.nbytes());
  }
  void Send() {
    if (tensors_.empty()) return;
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : tensors_) flat.push_back(t.reshape({-1}).to(device_));
    const at::Tensor joined = at::cat(flat);
    ThrowIfError(communicator_->Broadcast(BufferOf(joined), owner_)->Wait());
    int64_t offset = 0;
    for (const at::Tensor& t : tensors_) {
      t.copy_(joined.narrow(0, offset, t.numel()).reshape(t.sizes()));
      offset += t.numel();
    }
    tensors_.clear();
    bytes_ = 0;
  }

 private:
  const c10::Device device_;
  Communicator* const communicator_;
  const int owner_;
  const int64_t piece_bytes_;
  std::vector<at::Tensor> tensors_;
  int64_t bytes_ = 0;
};

void Broadcast(const std::vector<at::Tensor>& tensors, c10::Device device,
               Communicator* communicator, int owner, int64_t piece_bytes) {
  if (communicator->size() == 1) return;
  at::NoGradGuard no_grad;
  std::vector<at::ScalarType> types;
  for (const at::Tensor& t : tensors) {
    if (std::find(types.begin(), types.end(), t.scalar_type()) == types.end())
      types.push_back(t.scalar_type());
  }
  for (at::ScalarType type : types) {
    Joined joined(device, communicator, owner, piece_bytes);
    const int64_t piece =
        std::max<int64_t>(1, piece_bytes / static_cast<int64_t>(c10::elementSize(type)));
    for (const at::Tensor& t : tensors) {
      if (t.scalar_type() != type) continue;
      const at::Tensor value = t.detach();
      if (value.numel() <= piece) {
        joined.Add(value);
        continue;
      }
      // All replicas cut a tensor alike, whatever its strides are on each.
      const at::Tensor flat = value.is_contiguous() ? value.view({-1}) : value.reshape({-1});
      for (int64_t begin = 0; begin < flat.numel(); begin += piece)
        joined.Add(flat.narrow(0, begin, std::min(piece, flat.numel() - begin)));
      joined.Send();
      if (!value.is_contiguous()) value.copy_(flat.reshape(value.sizes()));
    }
    joined.Send();
  }
}

}  // namespace

std::string BroadcastText(const std::string& mine, c10::Device device, Communicator* communicator,
                          int owner) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(mine.size()), at::kLong);
  Broadcast({size}, device, communicator, owner, kBroadcastPiece);
  const int64_t length = *size.const_data_ptr<int64_t>();
  if (length == 0) return "";
  at::Tensor bytes = at::zeros({length}, at::kByte);
  auto* data = static_cast<char*>(bytes.mutable_data_ptr());
  std::copy_n(mine.data(), std::min<int64_t>(length, static_cast<int64_t>(mine.size())), data);
  Broadcast({bytes}, device, communicator, owner, kBroadcastPiece);
  return {data, static_cast<size_t>(length)};
}

namespace {

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

// Every other number but the batch size, in a fixed order and back. Counts are exact below
// 2^53.
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
  const at::Tensor sizes =
      at::tensor({state->global_batch_size, state->extras.replicas}, at::kLong);
  Broadcast({sizes}, device, communicator, owner, kBroadcastPiece);
  state->global_batch_size = sizes.const_data_ptr<int64_t>()[0];
  state->extras.replicas = sizes.const_data_ptr<int64_t>()[1];
}

void BroadcastState(Replica* replica, Communicator* communicator, int owner, LoopState* state,
                    int64_t piece_bytes) {
  const c10::Device device = replica->device();
  LoopState next = *state;
  std::vector<double> numbers;
  VisitNumbers(&next, [&numbers](double* number) { numbers.push_back(*number); });
  const at::Tensor host = at::tensor(numbers, at::kDouble);
  Broadcast({host}, device, communicator, owner, piece_bytes);
  const double* number = host.const_data_ptr<double>();
  VisitNumbers(&next, [&number](double* to) { *to = *number++; });
  Json extras = Json::object();
  AddExtras(state->extras, &extras);
  extras = Json::parse(BroadcastText(Dump(extras), device, communicator, owner));
  auto taken = checkpoint::TakeExtras(&extras);
  ThrowIfError(taken.status());
  next.extras = *std::move(taken);
  NamedFromJson(Json::parse(BroadcastText(Dump(NamedToJson(*state)), device, communicator, owner)),
                &next);
  // Who holds the same step holds the same bits, and who holds none has nothing to lose: only an
  // older state must stay whole until the newer one is, for its owner may be lost meanwhile.
  // With callbacks the same step may have two states: before what its epoch's end decided, and
  // after.
  std::set<std::string> kept;
  if (next.extras.callbacks)
    for (const auto& [callback, step] : next.extras.callbacks->kept) kept.insert(callback);
  const bool keeps = state->steps > 0 && (state->steps < next.steps ||
                                          state->extras.callbacks != next.extras.callbacks);
  std::vector<at::Tensor> own = replica->replicated_state();
  const std::vector<at::Tensor> of_callbacks = replica->kept().Of(kept);
  own.insert(own.end(), of_callbacks.begin(), of_callbacks.end());
  std::vector<at::Tensor> received;
  for (const at::Tensor& t : own) received.push_back(keeps ? at::empty_like(t.detach()) : t);
  Broadcast(received, device, communicator, owner, piece_bytes);
  if (keeps) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < own.size(); ++i) own[i].detach().copy_(received[i]);
  }
  replica->kept().Only(kept);
  *state = std::move(next);
  BroadcastTables(replica, communicator, owner, state->steps);
}

}  // namespace muster
