// One operation, as every rank issued it and as a backend carries it out. Internal to the
// collective library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/reduce.h"

namespace muster::collective {

enum class Verb : uint8_t { kAllReduce = 0, kBroadcast, kAllGather, kReduceScatter, kBarrier };
const char* VerbName(Verb verb);  // "all_reduce", ...

// What all ranks must agree on; it travels with the data, and is compared before any byte of the
// data is used. Plain memory, 32 bytes.
struct Signature {
  uint64_t sequence = 0;  // from 1
  int64_t count = 0;      // as the caller gave it: elements of the buffer, or of the smaller one
  int32_t root = -1;
  Verb verb = Verb::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kSum;
  // Where processes carry it out for their replicas: what those asked for, which another operation
  // may look like from here (a mean is summed first, a root is a process).
  bool for_replicas = false;
  int32_t asked_root = -1;
  Verb asked_verb = Verb::kBarrier;
  ReduceOp asked_op = ReduceOp::kSum;
  uint8_t spare[2] = {};
  bool operator==(const Signature&) const = default;
  std::string Text() const;  // "all_reduce(float32 x 100, sum)"
};
static_assert(sizeof(Signature) == 32);

// One span of the index space and what this rank does with it. With reduction, part r is reduced
// over all ranks by rank r, from each rank's `send`; without, rank r's `send` is the part.
struct Part {
  const std::byte* send = nullptr;  // for a gather only the owner's is read
  std::byte* receive = nullptr;     // where the result goes; the owner's is always given
  int64_t count = 0;                // elements; equal on all ranks
};

// Every verb in one form: an optional reduce phase in which rank r comes to hold part r, then an
// optional gather phase in which every rank gets all parts.
struct Plan {
  std::vector<Part> parts;  // by rank
  DataType type = DataType::kByte;
  Reduction reduction;
  bool reduce = false, gather = false;
  // Set when all parts lie one after another in one buffer, sent and received in place.
  std::byte* base = nullptr;
  int64_t count = 0;  // elements of all parts
};

struct Operation {
  Signature signature;
  Buffer send, receive;  // in place: the same
};

// The plan of `operation` for `size` ranks of which this one is `rank`; kMean divides by
// `divisor`.
Plan MakePlan(const Operation& operation, int rank, int size, int64_t divisor);
// An in-place plan over `buffer` in which the first `owners` ranks own equal parts.
Plan MakeInPlacePlan(Buffer buffer, int owners, int size, Reduction reduction, bool reduce,
                     bool gather);
// An in-place broadcast of `buffer` from `root`.
Plan MakeBroadcastPlan(Buffer buffer, int root, int size);

Reduction ReductionOf(ReduceOp op, int64_t divisor);

// "rank 1 (worker:0)"; labels may be empty.
std::string RankName(const std::vector<std::string>& labels, int rank);
// "worker 0 <-> worker 1", whichever side says it.
std::string LinkName(const std::vector<std::string>& labels, int a, int b);
// The one sentence for ranks that disagree; `a` is the lower rank.
absl::Status MismatchError(std::string_view name_a, const Signature& a, std::string_view name_b,
                           const Signature& b);

}  // namespace muster::collective
