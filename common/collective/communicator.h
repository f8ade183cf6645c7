// Collective operations among the ranks of one generation. Asynchronous, abortable, each with a
// deadline.
//
// Operations are executed in the order in which they were issued; every rank must issue the same
// ones in the same order. Issuing is for one thread at a time; Abort() and status() may be called
// from any thread at any time, also while another thread waits. The first error poisons the
// communicator: it wakes every waiter and is what every later call returns. Memory passed in is
// read and written only between the issue and the end of the operation's Wait(); after Abort() has
// returned nobody else writes to it either (CPU backends; for NCCL see nccl.h).
//
// The order of a reduction depends only on ranks and sizes, never on timing, and all ranks end with
// the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "muster/reduce_op.h"
#include "muster/status.h"

namespace muster {

enum class DataType : uint8_t { kFloat32 = 0, kFloat64, kFloat16, kBFloat16, kInt64, kByte };

int64_t SizeOf(DataType type);
std::string_view DataTypeName(DataType type);  // "float32", ...
std::string_view ReduceOpName(ReduceOp op);    // "sum", ...

// `count` elements at `data`, contiguous. Host memory, but for NCCL device memory of the
// communicator's device.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kByte;
  int64_t bytes() const { return count * SizeOf(type); }
};

// One operation under way.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until the operation has ended: OK, or the error that poisoned the communicator. A
  // deadline that passes names the ranks that did not come. May be called more than once. On a
  // communicator without a progress thread this is where the operation, and all issued before it,
  // are carried out. For NCCL it blocks the host until the device is done.
  virtual absl::Status Wait() = 0;
  virtual bool Done() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

class Communicator {
 public:
  virtual ~Communicator() = default;  // Aborts what is still under way.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // For logs: "shared memory, 2 ranks".
  virtual std::string Describe() const = 0;

  // In place. kMean divides by size(); for kInt64 it truncates towards zero. kByte cannot be
  // reduced.
  virtual WorkPtr AllReduce(Buffer buffer, ReduceOp op) = 0;
  // In place, any type.
  virtual WorkPtr Broadcast(Buffer buffer, int root) = 0;
  // receive.count == send.count * size(); rank r's part lies at r * send.count.
  virtual WorkPtr AllGather(Buffer send, Buffer receive) = 0;
  // send.count == receive.count * size(); rank r receives the reduced part r.
  virtual WorkPtr ReduceScatter(Buffer send, Buffer receive, ReduceOp op) = 0;
  virtual WorkPtr Barrier() = 0;

  // Memory that the all-reduce of this communicator need not copy (a shared segment); null where
  // there is nothing to gain. It lives until the communicator is destroyed, and belongs to its
  // generation alone.
  virtual std::shared_ptr<void> AllocateReducible(int64_t /*bytes*/) { return nullptr; }

  // Poisons with `why`. Returns when no thread of this communicator touches caller memory any more.
  virtual void Abort(absl::Status why) = 0;
  // OK, or the error that poisoned it.
  virtual absl::Status status() const = 0;

  // A deadline for each operation, from its issue (or, without a progress thread, from its Wait).
  virtual void set_timeout(Duration timeout) = 0;
};

}  // namespace muster
