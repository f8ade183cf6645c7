#include "common/train/state/loop_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "common/checkpoint/state/fields.h"
#include "common/job/finished_run.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/embedding/embedding_state.h"
#include "common/train/replica/devices/precision.h"
#include "muster/json.h"

namespace muster {
namespace {

using collective::Communicator;

// Broadcasts tensors of one type in pieces. Small tensors share a piece, because each piece costs a
// round trip. Large tensors are split. A piece is copied to its tensors only after it has arrived
// completely.
class Pieces {
 public:
  Pieces(c10::Device device, Communicator* communicator, int owner, const TransferOptions& options)
      : device_(device), communicator_(communicator), owner_(owner), options_(options) {}

  // Splits a tensor by its shape only. Strides may differ between replicas, which must split alike.
  void Add(const at::Tensor& tensor) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes <= options_.piece_bytes || tensor.numel() == 1) return AddPiece(tensor, bytes);
    const int64_t row = bytes / tensor.size(0);
    const int64_t rows = std::max<int64_t>(1, options_.piece_bytes / row);
    for (int64_t begin = 0; begin < tensor.size(0); begin += rows) {
      const int64_t n = std::min(rows, tensor.size(0) - begin);
      if (n * row <= options_.piece_bytes || tensor.dim() == 1)
        AddPiece(tensor.narrow(0, begin, n), n * row);
      else
        Add(tensor.select(0, begin));
    }
  }
  void Send() {
    if (tensors_.empty()) return;
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : tensors_) flat.push_back(t.reshape({-1}).to(device_));
    const at::Tensor joined = at::cat(flat);
    flat.clear();
    ThrowIfError(communicator_->Broadcast(BufferOf(joined), owner_)->Wait());
    if (communicator_->rank() != owner_) {
      int64_t offset = 0;
      for (const at::Tensor& t : tensors_) {
        t.copy_(joined.narrow(0, offset, t.numel()).reshape(t.sizes()));
        offset += t.numel();
      }
    }
    tensors_.clear();
    bytes_ = 0;
    if (options_.moment) options_.moment();
  }

 private:
  void AddPiece(const at::Tensor& piece, int64_t bytes) {
    if (bytes_ + bytes > options_.piece_bytes) Send();
    tensors_.push_back(piece);
    bytes_ += bytes;
  }

  const c10::Device device_;
  Communicator* const communicator_;
  const int owner_;
  const TransferOptions& options_;
  std::vector<at::Tensor> tensors_;
  int64_t bytes_ = 0;
};

void Broadcast(const std::vector<at::Tensor>& tensors, c10::Device device,
               Communicator* communicator, int owner, const TransferOptions& options = {}) {
  if (communicator->size() == 1) return;
  at::NoGradGuard no_grad;
  std::vector<at::ScalarType> types;
  for (const at::Tensor& t : tensors) {
    if (std::find(types.begin(), types.end(), t.scalar_type()) == types.end())
      types.push_back(t.scalar_type());
  }
  for (at::ScalarType type : types) {
    Pieces pieces(device, communicator, owner, options);
    for (const at::Tensor& t : tensors)
      if (t.scalar_type() == type) pieces.Add(t.detach());
    pieces.Send();
  }
}

}  // namespace

std::string BroadcastText(const std::string& mine, c10::Device device, Communicator* communicator,
                          int owner) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(mine.size()), at::kLong);
  Broadcast({size}, device, communicator, owner);
  const int64_t length = *size.const_data_ptr<int64_t>();
  if (length == 0) return "";
  at::Tensor bytes = at::zeros({length}, at::kByte);
  auto* data = static_cast<char*>(bytes.mutable_data_ptr());
  std::copy_n(mine.data(), std::min<int64_t>(length, static_cast<int64_t>(mine.size())), data);
  Broadcast({bytes}, device, communicator, owner);
  return {data, static_cast<size_t>(length)};
}

namespace {

// Converts values with names to JSON, because only the owner knows how many there are.
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

// Visits all other numbers of the state except the batch size, in a fixed order. Converts them to
// and from double, which is exact for counts below 2^53.
template <typename Visit>
void VisitNumbers(LoopState* state, const Visit& visit) {
  const auto integer = [&visit](auto* value) {
    double number = static_cast<double>(*value);
    visit(&number);
    *value = static_cast<std::remove_pointer_t<decltype(value)>>(number);
  };
  integer(&state->step);
  integer(&state->epoch);
  integer(&state->offset);
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
  integer(&state->stop_asked);
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

bool IsFinished(const Job& job, const LoopState& state) {
  return state.extras.finished || TrainedToItsEnd(job, state.step, state.epoch);
}

void BroadcastBatchSize(c10::Device device, Communicator* communicator, int owner,
                        LoopState* state) {
  const at::Tensor sizes =
      at::tensor({state->global_batch_size, state->extras.replicas}, at::kLong);
  Broadcast({sizes}, device, communicator, owner);
  state->global_batch_size = sizes.const_data_ptr<int64_t>()[0];
  state->extras.replicas = sizes.const_data_ptr<int64_t>()[1];
}

namespace {

Json BroadcastJson(const Json& mine, c10::Device device, Communicator* communicator, int owner) {
  auto json =
      ParseJson(BroadcastText(Dump(mine), device, communicator, owner), "the state of a member");
  ThrowIfError(json.status());
  return *std::move(json);
}

// Returns the owner's state, received from the owner. Its tensors are sent separately.
LoopState BroadcastNumbers(const LoopState& mine, c10::Device device, Communicator* communicator,
                           int owner) {
  LoopState next = mine;
  std::vector<double> numbers;
  VisitNumbers(&next, [&numbers](double* number) { numbers.push_back(*number); });
  const at::Tensor host = at::tensor(numbers, at::kDouble);
  Broadcast({host}, device, communicator, owner);
  const double* number = host.const_data_ptr<double>();
  VisitNumbers(&next, [&number](double* to) { *to = *number++; });
  Json extras = Json::object();
  AddExtras(mine.extras, &extras);
  extras = BroadcastJson(extras, device, communicator, owner);
  auto taken = checkpoint::TakeExtras(&extras);
  ThrowIfError(taken.status());
  next.extras = *std::move(taken);
  NamedFromJson(BroadcastJson(NamedToJson(mine), device, communicator, owner), &next);
  return next;
}

int64_t BytesOf(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& t : tensors) bytes += static_cast<int64_t>(t.nbytes());
  return bytes;
}

}  // namespace

void BroadcastState(Replica* replica, Communicator* communicator, int owner, LoopState* state,
                    const TransferOptions& options) {
  const c10::Device device = replica->device();
  LoopState next = BroadcastNumbers(*state, device, communicator, owner);
  // States of the same step are equal on all replicas, so a replica at the owner's step needs no
  // copy. With callbacks, a step may have two states: before and after the requests at the end of
  // its epoch.
  const bool holds = communicator->rank() == owner ||
                     (state->whole && state->step > 0 && state->step == next.step &&
                      state->extras.callbacks == next.extras.callbacks);
  TableTransfer tables(replica, communicator, owner, holds);
  std::set<std::string> kept;
  if (next.extras.callbacks)
    for (const auto& [callback, step] : next.extras.callbacks->kept) kept.insert(callback);
  std::vector<at::Tensor> own = replica->replicated_state();
  const std::vector<at::Tensor> of_callbacks = replica->kept().Of(kept);
  own.insert(own.end(), of_callbacks.begin(), of_callbacks.end());
  // Keeps the older state during the transfer, because the owner may be lost before the transfer
  // completes. If the state is too large for a second copy, it is overwritten, and this replica has
  // no state meanwhile.
  const bool stages = !holds && state->whole && state->step > 0 && !tables.moves() &&
                      BytesOf(own) <= options.staged_bytes;
  if (!holds && !stages) state->whole = false;
  std::vector<at::Tensor> received;
  for (const at::Tensor& t : own) received.push_back(stages ? at::empty_like(t.detach()) : t);
  if (options.moment) options.moment();
  Broadcast(received, device, communicator, owner, options);
  tables.Run(next.step, &state->tables_whole, options.moment);
  if (stages) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < own.size(); ++i) own[i].detach().copy_(received[i]);
  }
  replica->kept().Only(kept);
  next.whole = next.tables_whole = true;
  *state = std::move(next);
}

}  // namespace muster
