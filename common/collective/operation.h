// A collective operation: its description, which all ranks compare, and its plan, which a backend
// runs. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/reduce.h"

namespace muster::collective {

enum class Verb : uint8_t { kAllReduce = 0, kBroadcast, kAllGather, kReduceScatter, kBarrier };
const char* VerbName(Verb verb);  // "all_reduce", ...

// The part of an operation that must be equal on all ranks. A rank sends the signature with the
// data, and compares the other ranks' signatures with its own before it uses their data. The
// signature is sent as its 32 bytes of memory.
struct Signature {
  uint64_t sequence = 0;  // The number of the operation, from 1.
  // The number of elements in the caller's buffer, or in the smaller buffer if there are two.
  int64_t count = 0;
  int32_t root = -1;
  Verb verb = Verb::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kSum;
  // True if the ranks are processes that run this operation as a part of an operation of their
  // replicas. The asked_* members then describe the replicas' operation, which may differ. For
  // example, the processes compute a sum if the replicas compute a mean, and `root` is a process
  // while `asked_root` is a replica.
  bool for_replicas = false;
  int32_t asked_root = -1;
  Verb asked_verb = Verb::kBarrier;
  ReduceOp asked_op = ReduceOp::kSum;
  uint8_t spare[2] = {};
  bool operator==(const Signature&) const = default;
  std::string Text() const;  // For example "all_reduce(float32 x 100, sum)".
};
static_assert(sizeof(Signature) == 32);

// One of the parts into which an operation divides the elements. Rank r owns part r. If the
// operation reduces, the result of a part is the reduction of the `send` memory of all ranks.
// Otherwise, the result is the owner's `send` memory.
struct RankPart {
  const std::byte* send = nullptr;  // Without a reduction, only the owner's `send` is read.
  std::byte* receive = nullptr;     // The memory for the result. Never null on the owner.
  int64_t count = 0;                // The number of elements, equal on all ranks.
};

// The steps of an operation on this rank. All verbs have the same form: an optional reduce phase,
// then an optional gather phase. After the reduce phase, rank r has the result of part r. After the
// gather phase, every rank has all parts.
struct Plan {
  std::vector<RankPart> parts;  // Indexed by rank.
  DataType type = DataType::kByte;
  Reduction reduction;
  bool reduce = false, gather = false;
  // The buffer of an operation in place, which contains all parts. Null for other operations.
  std::byte* base = nullptr;
  int64_t count = 0;  // The number of elements in all parts.
};

struct Operation {
  Signature signature;
  Buffer send, receive;  // The same buffer for an operation in place.
};

// Returns the plan of `operation` for rank `rank` of `size`. kMean divides by `divisor`.
Plan MakePlan(const Operation& operation, int rank, int size, int64_t divisor);
// Returns an in-place plan over `buffer` in which the first `owners` ranks own equal parts.
Plan MakeInPlacePlan(Buffer buffer, int owners, int size, Reduction reduction, bool reduce,
                     bool gather);
// Returns an in-place broadcast of `buffer` from `root`.
Plan MakeBroadcastPlan(Buffer buffer, int root, int size);

struct Bytes {
  int64_t sent = 0, received = 0;
  bool operator==(const Bytes&) const = default;
};
// Return the bytes that rank `rank` of `size` sends and receives if each owner of a part exchanges
// data directly with all other ranks. In a broadcast, the root sends the buffer to each other rank.
Bytes TrafficOf(const Plan& plan, int rank);
Bytes TrafficOf(const Signature& signature, int rank, int size);

Reduction ReductionOf(ReduceOp op, int64_t divisor);

// Returns a name such as "rank 1 (worker:0)". `labels` may be empty.
std::string RankName(const std::vector<std::string>& labels, int rank);
// Returns a name such as "worker 0 <-> worker 1", with the lower rank first.
std::string LinkName(const std::vector<std::string>& labels, int a, int b);
// Returns the error for two ranks with different operations. `a` is the lower rank.
absl::Status MismatchError(std::string_view name_a, const Signature& a, std::string_view name_b,
                           const Signature& b);

}  // namespace muster::collective
