#include "common/train/replica/replica_values.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "common/base/hash.h"
#include "common/train/replica/gradients/gradient_buckets.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

using collective::Communicator;

constexpr const char* kSameEverywhere =
    "every replica must make the same calls, with the same names, types and shapes, with an empty "
    "batch too";
constexpr size_t kMaxText = 2000;  // Limit of the text of one replica in an error.

// A tensor of a nested value. The name has the keys on its path, separated by "/".
struct Leaf {
  std::string name;
  at::Tensor value;
};

void CollectLeaves(const Nested& value, const std::string& name, std::vector<Leaf>* leaves) {
  if (value.is_tensor()) {
    leaves->push_back({name, value.tensor()});
    return;
  }
  for (const auto& [key, item] : value.items())
    CollectLeaves(item, name.empty() ? key : name + "/" + key, leaves);
}

// The error in this replica's call, or "". Replicas compare it with the description of the call.
using Wrong = std::string;

// Blocks until all replicas know the error, then returns it. A replica that returned earlier would
// abort the operations of the others before they know it.
absl::Status OnceAllKnow(Communicator* communicator, const std::string& what) {
  (void)communicator->Barrier()->Wait();
  return ProgramError(what);
}

// Returns the tensors of `value`, detached and on the device, in an order that is equal on all
// replicas.
std::vector<Leaf> LeavesOf(const Nested& value, at::Device device, Wrong* wrong) {
  std::vector<Leaf> leaves;
  CollectLeaves(value, "", &leaves);
  for (Leaf& leaf : leaves) {
    if (!leaf.value.defined()) {
      *wrong = fmt::format("\"{}\" is no tensor", leaf.name);
      return {};
    }
    leaf.value = leaf.value.detach().to(device);
  }
  return leaves;
}

int64_t AxisOf(const Leaf& leaf, int64_t axis, Wrong* wrong) {
  const int64_t dims = leaf.value.dim();
  if (axis < -dims || axis >= dims)
    *wrong = fmt::format("\"{}\" has shape [{}], and no axis {}", leaf.name,
                         fmt::join(leaf.value.sizes(), ", "), axis);
  return axis < 0 ? axis + dims : axis;
}

// Returns a description of what must be equal on all replicas: names, types and shapes, without the
// length along the axis.
std::string Describe(const std::vector<Leaf>& leaves, const std::vector<int64_t>& axes) {
  std::string text;
  for (size_t i = 0; i < leaves.size(); ++i) {
    std::string shape;
    for (int64_t d = 0; d < leaves[i].value.dim(); ++d) {
      const bool open = !axes.empty() && axes[i] == d;
      shape += (d > 0 ? ", " : "") + (open ? "*" : std::to_string(leaves[i].value.size(d)));
    }
    text += fmt::format("{}{}{}{} [{}]", text.empty() ? "" : ", ", leaves[i].name,
                        leaves[i].name.empty() ? "" : ": ",
                        c10::toString(leaves[i].value.scalar_type()), shape);
  }
  return leaves.empty() ? "nothing" : text;
}

void AllReduce(Communicator* communicator, at::Tensor* values, ReduceOp op) {
  if (communicator->size() == 1 || values->numel() == 0) return;
  ThrowIfError(communicator->AllReduce(BufferOf(*values), op)->Wait());
}

// Returns the tensors `mine` of all replicas, [replicas, ...]. They must have the same shape.
at::Tensor AllGather(Communicator* communicator, const at::Tensor& mine) {
  std::vector<int64_t> shape = mine.sizes().vec();
  shape.insert(shape.begin(), communicator->size());
  if (communicator->size() == 1 || mine.numel() == 0) return mine.expand(shape).contiguous();
  const at::Tensor send = mine.contiguous();
  at::Tensor all = at::empty(shape, mine.options());
  ThrowIfError(communicator->AllGather(BufferOf(send), BufferOf(all))->Wait());
  return all;
}

// Returns the length of each leaf along its axis: [replicas][leaves].
std::vector<std::vector<int64_t>> GatherLengths(Communicator* communicator, at::Device device,
                                                const std::vector<Leaf>& leaves,
                                                const std::vector<int64_t>& axes) {
  std::vector<int64_t> mine;
  for (size_t i = 0; i < leaves.size(); ++i) mine.push_back(leaves[i].value.size(axes[i]));
  const at::Tensor all =
      AllGather(communicator, at::tensor(mine, at::kLong).to(device)).to(at::kCPU);
  std::vector<std::vector<int64_t>> lengths;
  const int64_t* at = all.const_data_ptr<int64_t>();
  for (int r = 0; r < communicator->size(); ++r, at += mine.size())
    lengths.emplace_back(at, at + mine.size());
  return lengths;
}

// The type in which a tensor is reduced, and the type of the result.
struct Types {
  at::ScalarType computed, result;
};

Types TypesOf(const Leaf& leaf, ReduceOp op, bool has_axis, Wrong* wrong) {
  const at::ScalarType type = leaf.value.scalar_type();
  if (leaf.value.is_complex())
    *wrong =
        fmt::format("\"{}\" holds complex numbers: reduce the real and imaginary parts", leaf.name);
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kMean;
  if (leaf.value.is_floating_point()) {
    if (type == at::kDouble) return {type, type};
    // Sums over an axis are computed in double. A mean over all examples is then equal up to
    // rounding for any number of replicas.
    return {adds && has_axis ? at::kDouble : at::kFloat, type};
  }
  if (op == ReduceOp::kMean) return {at::kDouble, at::kDouble};
  return {at::kLong, adds ? at::kLong : type};
}

// Returns a tensor like `like` with the neutral element of the operation.
at::Tensor Identity(const at::Tensor& like, ReduceOp op) {
  const bool most = op == ReduceOp::kMin;
  if (!like.is_floating_point())
    return at::full_like(
        like, most ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return at::full_like(like, most ? kInfinity : -kInfinity);
}

// Reduces one tensor over its axis.
at::Tensor ReduceLocally(const at::Tensor& value, ReduceOp op, int64_t axis) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) return value.sum(axis);
  if (value.size(axis) == 0) return Identity(value.sum(axis), op);
  return op == ReduceOp::kMax ? value.amax(axis) : value.amin(axis);
}

// Reduces all tensors of one type in one operation.
void ReduceJoined(Communicator* communicator, std::vector<at::Tensor>* values, ReduceOp op) {
  std::map<at::ScalarType, std::vector<size_t>> by_type;
  for (size_t i = 0; i < values->size(); ++i) by_type[(*values)[i].scalar_type()].push_back(i);
  for (const auto& [type, places] : by_type) {
    std::vector<at::Tensor> flat;
    for (const size_t i : places) flat.push_back((*values)[i].reshape({-1}));
    at::Tensor joined = at::cat(flat);
    AllReduce(communicator, &joined, op);
    int64_t offset = 0;
    for (const size_t i : places) {
      const int64_t count = (*values)[i].numel();
      (*values)[i] = joined.narrow(0, offset, count).reshape((*values)[i].sizes());
      offset += count;
    }
  }
}

Nested Rebuild(const Nested& like, const std::vector<at::Tensor>& values) {
  size_t next = 0;
  return like.Map([&](const at::Tensor&) { return values[next++]; });
}

}  // namespace

absl::Status AgreeOn(Communicator* communicator, at::Device device, const std::string& text,
                     const std::string& rule) {
  if (communicator->size() == 1) return absl::OkStatus();
  const auto gather = [&](const at::Tensor& mine) {
    return AllGather(communicator, mine.to(device)).to(at::kCPU);
  };
  const size_t length = std::min(text.size(), kMaxText);
  const at::Tensor digests = gather(
      at::tensor({static_cast<int64_t>(Fnv1a(text)), static_cast<int64_t>(length)}, at::kLong));
  const auto digest = digests.accessor<int64_t, 2>();
  int other = 0;
  int64_t longest = 0;
  for (int r = 0; r < communicator->size(); ++r) {
    if (other == 0 && digest[r][0] != digest[0][0]) other = r;
    longest = std::max(longest, digest[r][1]);
  }
  if (other == 0) return absl::OkStatus();
  at::Tensor padded = at::zeros({std::max<int64_t>(1, longest)}, at::kByte);
  std::copy_n(text.data(), length, static_cast<char*>(padded.mutable_data_ptr()));
  const at::Tensor all = gather(padded);
  const auto text_of = [&](int r) {
    const auto* at = static_cast<const char*>(all.const_data_ptr()) + r * padded.numel();
    return std::string(at, static_cast<size_t>(digest[r][1]));
  };
  return OnceAllKnow(communicator, fmt::format("replica 0 {}, replica {} {}: {}", text_of(0), other,
                                               text_of(other), rule));
}

absl::StatusOr<GatheredTexts> GatherTexts(Communicator* communicator, at::Device device,
                                          int64_t number, const std::string& text) {
  GatheredTexts gathered;
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("exchanging texts", [&] {
    const at::NoGradGuard no_grad;
    const auto gather = [&](const at::Tensor& mine) {
      return AllGather(communicator, mine.to(device)).to(at::kCPU);
    };
    const auto length = static_cast<int64_t>(std::min(text.size(), kMaxText));
    const at::Tensor numbers = gather(at::tensor({number, length}, at::kLong));
    const auto of = numbers.accessor<int64_t, 2>();
    int64_t longest = 0;
    for (int r = 0; r < communicator->size(); ++r) {
      gathered.sum += of[r][0];
      longest = std::max(longest, of[r][1]);
    }
    if (longest == 0) return;
    at::Tensor padded = at::zeros({longest}, at::kByte);
    std::copy_n(text.data(), length, static_cast<char*>(padded.mutable_data_ptr()));
    const at::Tensor all = gather(padded);
    for (int r = 0; r < communicator->size(); ++r) {
      if (of[r][1] == 0) continue;
      const auto* at = static_cast<const char*>(all.const_data_ptr()) + r * longest;
      gathered.texts.emplace_back(at, static_cast<size_t>(of[r][1]));
    }
  }));
  return gathered;
}

namespace {

// Checks that all replicas make the same, valid call.
void Check(Communicator* communicator, at::Device device, const std::string& call,
           const std::vector<Leaf>& leaves, const std::vector<int64_t>& axes, const Wrong& wrong) {
  ThrowIfError(
      AgreeOn(communicator, device,
              fmt::format("calls {} of {}", call, wrong.empty() ? Describe(leaves, axes) : wrong),
              kSameEverywhere));
  if (!wrong.empty()) ThrowIfError(OnceAllKnow(communicator, fmt::format("{}: {}", call, wrong)));
}

}  // namespace

Nested ReduceOverReplicas(Communicator* communicator, at::Device device, ReduceOp op,
                          const Nested& value, std::optional<int64_t> axis) {
  const at::NoGradGuard no_grad;
  const std::string call = fmt::format("reduce({}{})", collective::ReduceOpName(op),
                                       axis ? fmt::format(", axis {}", *axis) : "");
  Wrong wrong;
  const std::vector<Leaf> leaves = LeavesOf(value, device, &wrong);
  std::vector<int64_t> axes;
  std::vector<Types> types;
  for (const Leaf& leaf : leaves) {
    if (axis) axes.push_back(AxisOf(leaf, *axis, &wrong));
    types.push_back(TypesOf(leaf, op, axis.has_value(), &wrong));
  }
  Check(communicator, device, call, leaves, axes, wrong);
  std::vector<int64_t> counts(leaves.size(), communicator->size());
  if (axis) {
    std::fill(counts.begin(), counts.end(), 0);
    for (const auto& lengths : GatherLengths(communicator, device, leaves, axes))
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += lengths[i];
  }
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (counts[i] == 0 && (op == ReduceOp::kMax || op == ReduceOp::kMin))
      ThrowIfError(OnceAllKnow(
          communicator, fmt::format("{}: no replica has an element of \"{}\" along the axis", call,
                                    leaves[i].name)));
    const at::Tensor computed = leaves[i].value.to(types[i].computed);
    values.push_back(axis ? ReduceLocally(computed, op, axes[i]) : computed);
  }
  ReduceJoined(communicator, &values, op == ReduceOp::kMean ? ReduceOp::kSum : op);
  for (size_t i = 0; i < values.size(); ++i) {
    if (op == ReduceOp::kMean) values[i] = values[i] / static_cast<double>(counts[i]);
    values[i] = values[i].to(types[i].result);
  }
  return Rebuild(value, values);
}

Nested GatherOverReplicas(Communicator* communicator, at::Device device, const Nested& value,
                          int64_t axis) {
  const at::NoGradGuard no_grad;
  const std::string call = axis == 0 ? "gather" : fmt::format("gather(axis {})", axis);
  Wrong wrong;
  std::vector<Leaf> leaves = LeavesOf(value, device, &wrong);
  std::vector<int64_t> axes;
  for (Leaf& leaf : leaves) {
    if (leaf.value.dim() == 0 && axis == 0) leaf.value = leaf.value.reshape({1});
    axes.push_back(AxisOf(leaf, axis, &wrong));
  }
  Check(communicator, device, call, leaves, axes, wrong);
  const auto lengths = GatherLengths(communicator, device, leaves, axes);
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor part = leaves[i].value.movedim(axes[i], 0);
    // An all-gather needs equal parts, so shorter parts are padded.
    std::vector<int64_t> shape = part.sizes().vec();
    shape[0] = 0;
    for (const auto& of_replica : lengths) shape[0] = std::max(shape[0], of_replica[i]);
    at::Tensor padded = at::zeros(shape, part.options());
    padded.narrow(0, 0, part.size(0)).copy_(part);
    const at::Tensor all = AllGather(communicator, padded);
    std::vector<at::Tensor> parts;
    for (int r = 0; r < communicator->size(); ++r)
      parts.push_back(all[r].narrow(0, 0, lengths[r][i]));
    values.push_back(at::cat(parts).movedim(0, axes[i]).contiguous());
  }
  return Rebuild(value, values);
}

}  // namespace muster
