#include "common/train/step/step_buffers.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <map>

namespace muster {
namespace {

// Larger buffers are compared one by one, because joining them would copy them.
constexpr int64_t kJoinedElements = 1 << 16;

// Returns the bits as a 1-D integer tensor, so that a NaN equals itself.
at::Tensor Bits(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1});
  switch (flat.element_size()) {
    case 8:
      return flat.view(at::kLong);
    case 4:
      return flat.view(at::kInt);
    case 2:
      return flat.view(at::kShort);
    default:
      return flat.view(at::kByte);
  }
}

at::Tensor BitsOf(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return Bits(tensors[0]);
  std::vector<at::Tensor> bits;
  for (const at::Tensor& tensor : tensors) bits.push_back(Bits(tensor));
  return at::cat(bits);
}

// Converts the result of any() to float32 [1].
at::Tensor Flag(const at::Tensor& any) { return any.to(at::kFloat).reshape({1}); }

}  // namespace

StepBuffers::StepBuffers(Replica* replica, collective::Communicator* communicator)
    : replica_(replica), communicator_(communicator) {
  const at::NoGradGuard no_grad;
  std::map<const at::TensorImpl*, size_t> place;
  for (size_t i = 0; i < replica->buffers().size(); ++i) {
    const NamedBuffer& buffer = replica->buffers()[i];
    if (!place.try_emplace(buffer.tensor.unsafeGetTensorImpl(), all_.size()).second) continue;
    all_.push_back(buffer.tensor.detach());
    copies_.push_back(all_.back().clone());
    const bool mean = buffer.mode.value_or(BufferMode::kMean) == BufferMode::kMean;
    if (communicator->size() > 1 && mean && buffer.tensor.is_floating_point())
      averaged_.push_back({all_.back(), buffer.averaged, i, {}});
  }
}

void StepBuffers::Begin() {
  const at::NoGradGuard no_grad;
  begun_ = true;
  compared_.clear();
  std::map<int64_t, std::vector<Averaged*>> joined;  // Keyed by the size of an element.
  std::vector<std::vector<Averaged*>> groups;
  for (Averaged& buffer : averaged_) {
    buffer.seen = at::Tensor();
    if (buffer.found) continue;
    if (buffer.tensor.numel() > kJoinedElements)
      groups.push_back({&buffer});
    else
      joined[buffer.tensor.element_size()].push_back(&buffer);
  }
  for (auto& [size, group] : joined) groups.push_back(std::move(group));
  for (const std::vector<Averaged*>& group : groups) {
    Compared& compared = compared_.emplace_back();
    for (const Averaged* buffer : group) compared.tensors.push_back(buffer->tensor);
    compared.seen = BitsOf(compared.tensors).clone();
    int64_t at = 0;
    for (Averaged* buffer : group) {
      buffer->seen = compared.seen.narrow(0, at, buffer->tensor.numel());
      at += buffer->tensor.numel();
    }
  }
}

at::Tensor StepBuffers::AnyChanged() const {
  std::vector<at::Tensor> flags;
  for (const Compared& compared : compared_)
    flags.push_back(Flag(BitsOf(compared.tensors).ne(compared.seen).any()));
  if (flags.empty()) return {};
  return flags.size() == 1 ? flags[0] : at::cat(flags).amax().reshape({1});
}

void StepBuffers::Keep() {
  const at::NoGradGuard no_grad;
  if (!begun_) Begin();
  for (size_t i = 0; i < all_.size(); ++i) copies_[i].copy_(all_[i]);
}

void StepBuffers::PutBack() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < all_.size(); ++i) all_[i].copy_(copies_[i]);
}

at::Tensor StepBuffers::Weighted(const Averaged& buffer, at::ScalarType type) const {
  return has_examples_ ? buffer.tensor.to(type).reshape({-1}) * share_
                       : at::zeros({buffer.tensor.numel()}, buffer.tensor.options().dtype(type));
}

void StepBuffers::AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples) {
  if (averaged_.empty()) return;
  const at::NoGradGuard no_grad;
  share_ = share;
  has_examples_ = has_examples;
  const at::Tensor changed = AnyChanged();
  control->push_back(changed.defined()
                         ? changed
                         : at::zeros({1}, averaged_[0].tensor.options().dtype(at::kFloat)));
  for (const Averaged& buffer : averaged_)
    if (buffer.found && !buffer.wide()) control->push_back(Weighted(buffer, at::kFloat));
}

absl::Status StepBuffers::Apply(const at::Tensor& reduced) {
  if (averaged_.empty()) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  int64_t at = 1;
  std::vector<Averaged*> wide;
  for (Averaged& buffer : averaged_) {
    if (!buffer.found) continue;
    if (buffer.wide()) {
      wide.push_back(&buffer);
      continue;
    }
    const int64_t count = buffer.tensor.numel();
    buffer.tensor.copy_(reduced.narrow(0, at, count).reshape(buffer.tensor.sizes()));
    at += count;
  }
  MUSTER_RETURN_IF_ERROR(ReduceNow(wide, at::kDouble));
  return !compared_.empty() && reduced[0].item<float>() > 0 ? Include() : absl::OkStatus();
}

absl::Status StepBuffers::ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type) {
  if (buffers.empty()) return absl::OkStatus();
  std::vector<at::Tensor> parts;
  for (const Averaged* buffer : buffers) parts.push_back(Weighted(*buffer, type));
  at::Tensor joined = at::cat(parts);
  MUSTER_RETURN_IF_ERROR(communicator_->AllReduce(BufferOf(joined), ReduceOp::kSum)->Wait());
  int64_t at = 0;
  for (Averaged* buffer : buffers) {
    const int64_t count = buffer->tensor.numel();
    buffer->tensor.copy_(joined.narrow(0, at, count).reshape(buffer->tensor.sizes()));
    at += count;
  }
  return absl::OkStatus();
}

absl::Status StepBuffers::Include() {
  std::vector<at::Tensor> changed;
  for (const Averaged& buffer : averaged_)
    if (!buffer.found) changed.push_back(Flag(Bits(buffer.tensor).ne(buffer.seen).any()));
  at::Tensor anywhere = at::cat(changed);
  MUSTER_RETURN_IF_ERROR(communicator_->AllReduce(BufferOf(anywhere), ReduceOp::kSum)->Wait());
  anywhere = anywhere.to(at::kCPU);
  std::vector<Averaged*> narrow, wide;
  int64_t undecided = 0, room = 0;
  for (Averaged& buffer : averaged_) {
    if (!buffer.found && anywhere.const_data_ptr<float>()[undecided++] > 0) {
      buffer.found = true;
      replica_->MarkAveraged(buffer.index);
      (buffer.wide() ? wide : narrow).push_back(&buffer);
    }
    if (buffer.found && !buffer.wide()) room += buffer.tensor.numel();
  }
  replica_->optimizer_set().set_buffer_room(room);
  Begin();  // The other buffers have not changed, so their values may become the reference.
  MUSTER_RETURN_IF_ERROR(ReduceNow(narrow, at::kFloat));
  return ReduceNow(wide, at::kDouble);
}

absl::Status CheckSameBuffers(const Replica& replica, collective::Communicator* communicator) {
  if (communicator->size() == 1) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  std::vector<const NamedBuffer*> same;
  for (const NamedBuffer& buffer : replica.buffers())
    if (buffer.mode == BufferMode::kSame) same.push_back(&buffer);
  if (same.empty()) return absl::OkStatus();
  const auto count = static_cast<int64_t>(same.size());
  at::Tensor digests = at::empty({2 * count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const auto digest = static_cast<int64_t>(DigestOfTensor(same[i]->tensor, kDigestSeed));
    digests.mutable_data_ptr<int64_t>()[2 * i] = digest;
    digests.mutable_data_ptr<int64_t>()[2 * i + 1] = ~digest;
  }
  digests = digests.to(replica.device());
  MUSTER_RETURN_IF_ERROR(communicator->AllReduce(BufferOf(digests), ReduceOp::kMax)->Wait());
  digests = digests.to(at::kCPU);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* largest = digests.const_data_ptr<int64_t>() + 2 * i;
    // max(d) and max(~d) are complements only if all d are equal.
    if (largest[0] == ~largest[1]) continue;
    return ProgramError(
        fmt::format("buffer \"{}\" is declared the same on all replicas, and is not: compute it "
                    "alike everywhere, or declare it kMean or kPerReplica",
                    same[i]->name));
  }
  return absl::OkStatus();
}

}  // namespace muster
