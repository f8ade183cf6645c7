#include "common/train/step_buffers.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <map>

namespace muster {
namespace {

// Bit by bit, so that a NaN equals itself.
at::Tensor Bits(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 8:
      return tensor.view(at::kLong);
    case 4:
      return tensor.view(at::kInt);
    default:
      return tensor.view(at::kShort);
  }
}

at::Tensor Differs(const at::Tensor& a, const at::Tensor& b) {
  const bool as_bits = a.element_size() > 1 && a.dim() > 0 && a.strides() == b.strides();
  return (as_bits ? Bits(a).ne(Bits(b)) : a.ne(b)).any().to(at::kFloat).reshape({1});
}

}  // namespace

StepBuffers::StepBuffers(Replica* replica, Communicator* communicator)
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
      averaged_.push_back({all_.back(), copies_.back(), buffer.averaged, i});
  }
}

void StepBuffers::Keep() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < all_.size(); ++i) copies_[i].copy_(all_[i]);
}

void StepBuffers::PutBack() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < all_.size(); ++i) all_[i].copy_(copies_[i]);
}

at::Tensor StepBuffers::Part(const Averaged& buffer, at::ScalarType type) const {
  return has_examples_ ? buffer.tensor.to(type).reshape({-1}) * share_
                       : at::zeros({buffer.tensor.numel()}, buffer.tensor.options().dtype(type));
}

void StepBuffers::AppendTo(std::vector<at::Tensor>* control, double share, bool has_examples) {
  if (averaged_.empty()) return;
  const at::NoGradGuard no_grad;
  share_ = share;
  has_examples_ = has_examples;
  std::vector<at::Tensor> changed;
  for (const Averaged& buffer : averaged_)
    if (!buffer.found) changed.push_back(Differs(buffer.tensor, buffer.copy));
  changed_ = changed.empty() ? at::Tensor() : at::cat(changed);
  control->push_back(changed.empty()
                         ? at::zeros({1}, averaged_[0].tensor.options().dtype(at::kFloat))
                         : changed_.sum().reshape({1}));
  for (const Averaged& buffer : averaged_)
    if (buffer.found && !buffer.wide()) control->push_back(Part(buffer, at::kFloat));
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
  return changed_.defined() && reduced[0].item<float>() > 0 ? Include() : absl::OkStatus();
}

absl::Status StepBuffers::ReduceNow(const std::vector<Averaged*>& buffers, at::ScalarType type) {
  if (buffers.empty()) return absl::OkStatus();
  std::vector<at::Tensor> parts;
  for (const Averaged* buffer : buffers) parts.push_back(Part(*buffer, type));
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
  at::Tensor anywhere = changed_.contiguous();
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
  replica_->set_buffer_room(room);
  MUSTER_RETURN_IF_ERROR(ReduceNow(narrow, at::kFloat));
  return ReduceNow(wide, at::kDouble);
}

absl::Status CheckSameBuffers(const Replica& replica, Communicator* communicator) {
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
    if (largest[0] == ~largest[1]) continue;  // max(d) and max(~d) are complements: all are equal
    return ProgramError(
        fmt::format("buffer \"{}\" is declared the same on all replicas, and is not: compute it "
                    "alike everywhere, or declare it kMean or kPerReplica",
                    same[i]->name));
  }
  return absl::OkStatus();
}

}  // namespace muster
