#include "common/train/replica/replica_buffers.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace muster {
namespace {

using collective::Communicator;

// Returns a contiguous tensor on the collective's device.
at::Tensor Numbers(const std::vector<double>& numbers, c10::Device device) {
  return at::tensor(numbers, at::kDouble).to(device);
}

// Checks that each buffer has the same number of elements on all replicas. A program may have
// replaced the memory of a buffer (set_) on one replica only.
absl::Status CheckShapes(const std::vector<NamedBuffer>& buffers, const Replica& replica,
                         Communicator* communicator) {
  std::vector<double> elements;
  for (const NamedBuffer& buffer : buffers) {
    elements.push_back(static_cast<double>(buffer.tensor.numel()));
    elements.push_back(-static_cast<double>(buffer.tensor.numel()));
  }
  at::Tensor largest = Numbers(elements, replica.device());
  MUSTER_RETURN_IF_ERROR(communicator->AllReduce(BufferOf(largest), ReduceOp::kMax)->Wait());
  largest = largest.to(at::kCPU);
  for (size_t i = 0; i < buffers.size(); ++i) {
    const double* both = largest.const_data_ptr<double>() + 2 * i;
    if (both[0] == -both[1]) continue;
    return ProgramError(
        fmt::format("buffer \"{}\" has {} elements on one replica and {} on another: a buffer has "
                    "the same shape on all replicas; keep the number that is in use in another one",
                    buffers[i].name, both[0], -both[1]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StackedBuffers> GatherReplicaBuffers(const Replica& replica,
                                                    Communicator* communicator, bool* wanted) {
  const std::vector<NamedBuffer> buffers = replica.replica_buffers();
  StackedBuffers stacked;
  if (buffers.empty()) return stacked;
  const at::NoGradGuard no_grad;
  at::Tensor asked = Numbers({*wanted ? 1.0 : 0.0}, replica.device());
  MUSTER_RETURN_IF_ERROR(communicator->Broadcast(BufferOf(asked), 0)->Wait());
  *wanted = asked.item<double>() > 0;
  if (!*wanted) return stacked;
  MUSTER_RETURN_IF_ERROR(CheckShapes(buffers, replica, communicator));
  for (const NamedBuffer& buffer : buffers) {
    const at::Tensor own = buffer.tensor.detach().contiguous();
    const bool keeps = communicator->rank() == 0;
    at::Tensor all;
    if (keeps) {
      std::vector<int64_t> shape = own.sizes().vec();
      shape.insert(shape.begin(), communicator->size());
      all = at::empty(shape, own.options().device(at::kCPU));
    }
    // One replica at a time, because the device's memory may not hold all of them.
    const at::Tensor others = communicator->size() > 1 ? at::empty_like(own) : own;
    for (int r = 0; r < communicator->size() && own.numel() > 0; ++r) {
      const at::Tensor& value = r == communicator->rank() ? own : others;
      MUSTER_RETURN_IF_ERROR(communicator->Broadcast(BufferOf(value), r)->Wait());
      if (keeps) all[r].copy_(value);
    }
    if (keeps) stacked.emplace_back(buffer.name, std::move(all));
  }
  return stacked;
}

absl::Status DistributeReplicaBuffers(const Replica& replica, Communicator* communicator,
                                      const StackedBuffers& kept, bool has_own) {
  const std::vector<NamedBuffer> buffers = replica.replica_buffers();
  if (buffers.empty()) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  // The number of replicas without buffers of their own, followed for each buffer by the number of
  // replicas whose values replica 0 has.
  std::vector<double> numbers = {has_own ? 0.0 : 1.0};
  std::vector<const at::Tensor*> keeps;  // Null for a buffer without values here.
  for (const NamedBuffer& buffer : buffers) {
    const auto found = std::find_if(kept.begin(), kept.end(),
                                    [&](const auto& named) { return named.first == buffer.name; });
    keeps.push_back(communicator->rank() == 0 && found != kept.end() ? &found->second : nullptr);
    numbers.push_back(keeps.back() == nullptr ? 0.0 : static_cast<double>(found->second.size(0)));
  }
  at::Tensor counts = Numbers(numbers, replica.device());
  MUSTER_RETURN_IF_ERROR(communicator->AllReduce(BufferOf(counts), ReduceOp::kSum)->Wait());
  counts = counts.to(at::kCPU);
  const double* saved_of = counts.const_data_ptr<double>() + 1;
  const bool any = std::any_of(saved_of, saved_of + buffers.size(), [](double n) { return n > 0; });
  if (saved_of[-1] == 0 || !any) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(CheckShapes(buffers, replica, communicator));
  for (size_t b = 0; b < buffers.size(); ++b) {
    const NamedBuffer& buffer = buffers[b];
    const auto saved = static_cast<int64_t>(saved_of[b]);
    if (buffer.tensor.numel() == 0) continue;
    // One replica at a time, because the device's memory may not hold all of them.
    for (int64_t r = 0; r < saved; ++r) {
      at::Tensor value = communicator->rank() == 0
                             ? (*keeps[b])[r].to(replica.device()).contiguous().clone()
                             : at::empty(buffer.tensor.sizes(), buffer.tensor.options());
      MUSTER_RETURN_IF_ERROR(communicator->Broadcast(BufferOf(value), 0)->Wait());
      if (!has_own && communicator->rank() % saved == r) buffer.tensor.detach().copy_(value);
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
