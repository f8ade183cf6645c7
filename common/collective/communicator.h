// Collective operations among the ranks of one generation. Each operation is asynchronous, can be
// aborted and has a deadline.
//
// Operations run in the order in which they were issued. Every rank must issue the same operations
// in the same order. Only one thread at a time may issue. Abort() and status() are thread-safe,
// also while another thread waits. The first error poisons the communicator: it wakes every waiter,
// and every later call returns it.
//
// An operation reads and writes the caller's memory only between its issue and the end of its
// Wait(). After Abort() has returned, the CPU backends write no caller memory. nccl.h has the rules
// for NCCL.
//
// The order of a reduction depends only on ranks and sizes, never on timing. All ranks end with the
// same bits.
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

// `count` contiguous elements at `data`. NCCL takes device memory of the communicator's device, all
// other backends take host memory.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kByte;
  int64_t bytes() const { return count * SizeOf(type); }
};

// A handle to one issued operation.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until the operation has ended. Returns OK, or the error that poisoned the communicator.
  // The error of a missed deadline names the ranks that did not join. May be called more than once.
  // On a communicator without a progress thread, this call runs the operation and all operations
  // issued before it. For NCCL it blocks the host until the device is done.
  virtual absl::Status Wait() = 0;
  virtual bool Done() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

class Communicator {
 public:
  virtual ~Communicator() = default;  // Aborts the operations in progress.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns a description for logs, such as "shared memory, 2 ranks".
  virtual std::string Describe() const = 0;

  // In place. kMean divides by size() and truncates towards zero for kInt64. kByte cannot be
  // reduced.
  virtual WorkPtr AllReduce(Buffer buffer, ReduceOp op) = 0;
  // In place, for every type.
  virtual WorkPtr Broadcast(Buffer buffer, int root) = 0;
  // Requires receive.count == send.count * size(). The part of rank r is at index r * send.count.
  virtual WorkPtr AllGather(Buffer send, Buffer receive) = 0;
  // Requires send.count == receive.count * size(). Rank r receives the reduced part r.
  virtual WorkPtr ReduceScatter(Buffer send, Buffer receive, ReduceOp op) = 0;
  virtual WorkPtr Barrier() = 0;

  // Returns memory that an all-reduce of this communicator uses without a copy (a shared segment).
  // Null where the backend gains nothing by it. The memory is valid until the communicator is
  // destroyed, and no other generation may use it.
  virtual std::shared_ptr<void> AllocateReducible(int64_t /*bytes*/) { return nullptr; }

  // Poisons the communicator with `why`. Returns when no thread of this communicator touches caller
  // memory any more.
  virtual void Abort(absl::Status why) = 0;
  // Returns OK, or the error that poisoned the communicator.
  virtual absl::Status status() const = 0;

  // Sets the time limit of each operation. It counts from the issue, or from Wait() where there is
  // no progress thread.
  virtual void set_timeout(Duration timeout) = 0;
};

}  // namespace muster
