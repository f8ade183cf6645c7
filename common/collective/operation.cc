#include "common/collective/operation.h"

#include <fmt/format.h>

#include "common/cluster/verdict.h"

namespace muster::collective {

int64_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kByte:
      return 1;
  }
  return 1;
}

std::string_view DataTypeName(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kInt64:
      return "int64";
    case DataType::kByte:
      return "byte";
  }
  return "unknown type";
}

std::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "unknown op";
}

const char* VerbName(Verb verb) {
  switch (verb) {
    case Verb::kAllReduce:
      return "all_reduce";
    case Verb::kBroadcast:
      return "broadcast";
    case Verb::kAllGather:
      return "all_gather";
    case Verb::kReduceScatter:
      return "reduce_scatter";
    case Verb::kBarrier:
      return "barrier";
  }
  return "unknown";
}

std::string Signature::Text() const {
  if (for_replicas) {
    Signature plain = *this;
    plain.for_replicas = false;
    if (asked_verb == verb && asked_op == op && verb != Verb::kBroadcast) return plain.Text();
    std::string text = plain.Text() + " for the replicas' " + VerbName(asked_verb);
    if (asked_verb == Verb::kBroadcast) text += fmt::format(" from replica {}", asked_root);
    if (asked_verb == Verb::kAllReduce || asked_verb == Verb::kReduceScatter)
      text += fmt::format("({})", ReduceOpName(asked_op));
    return text;
  }
  switch (verb) {
    case Verb::kAllReduce:
      return fmt::format("all_reduce({} x {}, {})", DataTypeName(type), count, ReduceOpName(op));
    case Verb::kBroadcast:
      return fmt::format("broadcast({} x {} from rank {})", DataTypeName(type), count, root);
    case Verb::kAllGather:
      return fmt::format("all_gather({} x {} of each rank)", DataTypeName(type), count);
    case Verb::kReduceScatter:
      return fmt::format("reduce_scatter({} x {} to each rank, {})", DataTypeName(type), count,
                         ReduceOpName(op));
    case Verb::kBarrier:
      return "barrier()";
  }
  return "an unknown operation";
}

Reduction ReductionOf(ReduceOp op, int64_t divisor) {
  return {op == ReduceOp::kMean ? ReduceOp::kSum : op, op == ReduceOp::kMean ? divisor : 1};
}

Plan MakeInPlacePlan(Buffer buffer, int owners, int size, Reduction reduction, bool reduce,
                     bool gather) {
  Plan plan;
  plan.type = buffer.type;
  plan.reduction = reduction;
  plan.reduce = reduce;
  plan.gather = gather;
  plan.base = static_cast<std::byte*>(buffer.data);
  plan.count = buffer.count;
  plan.parts.resize(size);
  // Parts begin at multiples of a cache line, so two ranks never write to the same line.
  const int64_t grain = 64 / SizeOf(buffer.type);
  const int64_t share = (buffer.count + owners * grain - 1) / (owners * grain) * grain;
  for (int r = 0; r < size; ++r) {
    const int64_t begin = std::min<int64_t>(buffer.count, share * std::min(r, owners));
    const int64_t end = std::min<int64_t>(buffer.count, share * std::min(r + 1, owners));
    std::byte* at = plan.base + begin * SizeOf(buffer.type);
    plan.parts[r] = {at, at, end - begin};
  }
  return plan;
}

Plan MakeBroadcastPlan(Buffer buffer, int root, int size) {
  Plan plan;
  plan.type = buffer.type;
  plan.gather = true;
  plan.base = static_cast<std::byte*>(buffer.data);
  plan.count = buffer.count;
  plan.parts.resize(size);
  plan.parts[root] = {plan.base, plan.base, buffer.count};
  return plan;
}

Plan MakePlan(const Operation& operation, int rank, int size, int64_t divisor) {
  const Signature& s = operation.signature;
  const Reduction reduction = ReductionOf(s.op, divisor);
  auto* send = static_cast<std::byte*>(operation.send.data);
  auto* receive = static_cast<std::byte*>(operation.receive.data);
  const int64_t stride = s.count * SizeOf(s.type);
  Plan plan;
  switch (s.verb) {
    case Verb::kAllReduce:
      return MakeInPlacePlan(operation.receive, size, size, reduction, true, true);
    case Verb::kBroadcast:
      return MakeBroadcastPlan(operation.receive, s.root, size);
    case Verb::kAllGather:
      plan.gather = true;
      for (int r = 0; r < size; ++r) {
        plan.parts.push_back({r == rank ? send : nullptr, receive + r * stride, s.count});
      }
      break;
    case Verb::kReduceScatter:
      plan.reduce = true;
      for (int r = 0; r < size; ++r) {
        plan.parts.push_back({send + r * stride, r == rank ? receive : nullptr, s.count});
      }
      break;
    case Verb::kBarrier:
      plan.parts.resize(size);
      break;
  }
  plan.type = s.type;
  plan.reduction = reduction;
  plan.count = s.count * size;
  return plan;
}

Bytes TrafficOf(const Plan& plan, int rank) {
  const int64_t others = static_cast<int64_t>(plan.parts.size()) - 1;
  const int64_t mine = plan.parts[rank].count;
  int64_t theirs = -mine;  // The parts of the other ranks.
  for (const RankPart& part : plan.parts) theirs += part.count;
  const int64_t element = SizeOf(plan.type);
  const int64_t owned = others * mine * element, rest = theirs * element;
  // The owner of a part reads it from all others to reduce it. All others read the owner's result.
  Bytes bytes;
  if (plan.reduce) bytes = {rest, owned};
  if (plan.gather) bytes = {bytes.sent + owned, bytes.received + rest};
  return bytes;
}

Bytes TrafficOf(const Signature& signature, int rank, int size) {
  const int64_t bytes = signature.count * SizeOf(signature.type), others = size - 1;
  switch (signature.verb) {
    case Verb::kAllReduce:
      return {2 * others * bytes / size, 2 * others * bytes / size};
    case Verb::kBroadcast:
      return rank == signature.root ? Bytes{others * bytes, 0} : Bytes{0, bytes};
    case Verb::kAllGather:
    case Verb::kReduceScatter:
      return {others * bytes, others * bytes};
    case Verb::kBarrier:
      break;
  }
  return {};
}

std::string LinkName(const std::vector<std::string>& labels, int a, int b) {
  const auto name = [&labels](int rank) {
    if (rank >= static_cast<int>(labels.size()) || labels[rank].empty())
      return fmt::format("rank {}", rank);
    return TaskText(labels[rank]);
  };
  return fmt::format("{} <-> {}", name(std::min(a, b)), name(std::max(a, b)));
}

std::string RankName(const std::vector<std::string>& labels, int rank) {
  return rank < static_cast<int>(labels.size()) && !labels[rank].empty()
             ? fmt::format("rank {} ({})", rank, labels[rank])
             : fmt::format("rank {}", rank);
}

absl::Status MismatchError(std::string_view name_a, const Signature& a, std::string_view name_b,
                           const Signature& b) {
  return ProgramError(fmt::format(
      "The ranks disagree on collective operation {}: {} issued {}, {} issued {}{}. Every rank "
      "must issue the same operations in the same order.",
      a.sequence, name_a, a.Text(), name_b, b.Text(),
      a.sequence == b.sequence ? "" : fmt::format(" as its operation {}", b.sequence)));
}

}  // namespace muster::collective
