// One operation, as every rank issues it and as a backend executes it. Internal to the collective
// library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/reduce.h"

namespace muster::collective {

enum class Verb : uint8_t { kAllReduce = 0, kBroadcast, kAllGather, kReduceScatter, kBarrier };
const char* VerbName(Verb verb);  // "all_reduce", ...

// The parts of an operation that must be equal on all ranks. It travels with the data and is
// compared before any byte of the data is used. Plain memory, 32 bytes.
struct Signature {
  uint64_t sequence = 0;  // From 1.
  // As the caller gave it: elements of the buffer, or of the smaller of two buffers.
  int64_t count = 0;
  int32_t root = -1;
  Verb verb = Verb::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kSum;
  // Set where processes execute the operation on behalf of their replicas. asked_* describe what
  // the replicas asked for. The operation of the processes may differ from it: a mean is summed
  // first, and a root is a process.
  bool for_replicas = false;
  int32_t asked_root = -1;
  Verb asked_verb = Verb::kBarrier;
  ReduceOp asked_op = ReduceOp::kSum;
  uint8_t spare[2] = {};
  bool operator==(const Signature&) const = default;
  std::string Text() const;  // "all_reduce(float32 x 100, sum)"
};
static_assert(sizeof(Signature) == 32);

// One span of the index space and what this rank does with it. With reduction, rank r reduces part
// r over all ranks, from each rank's `send`. Without reduction, rank r's `send` is part r.
struct Part {
  const std::byte* send = nullptr;  // In a gather, only the owner's is read.
  std::byte* receive = nullptr;     // Where the result goes. The owner's is always set.
  int64_t count = 0;                // In elements, equal on all ranks.
};

// One form for all verbs: an optional reduce phase, then an optional gather phase. After the reduce
// phase, rank r holds part r. After the gather phase, every rank has all parts.
struct Plan {
  std::vector<Part> parts;  // By rank.
  DataType type = DataType::kByte;
  Reduction reduction;
  bool reduce = false, gather = false;
  // Set when all parts are adjacent in one buffer, and are sent and received in place.
  std::byte* base = nullptr;
  int64_t count = 0;  // Elements of all parts.
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

Reduction ReductionOf(ReduceOp op, int64_t divisor);

// Returns "rank 1 (worker:0)". `labels` may be empty.
std::string RankName(const std::vector<std::string>& labels, int rank);
// Returns "worker 0 <-> worker 1", in the same order on both sides.
std::string LinkName(const std::vector<std::string>& labels, int a, int b);
// Returns the error for two ranks whose operations differ. `a` is the lower rank.
absl::Status MismatchError(std::string_view name_a, const Signature& a, std::string_view name_b,
                           const Signature& b);

}  // namespace muster::collective
