// Collective operations among the ranks of one generation. A generation is a period of training
// with fixed members. A member is a process. A rank is a member, or one replica of a member (a copy
// of the model on one device). Operations are asynchronous, can be aborted and have a deadline.
//
// Every rank must issue the same operations in the same order. The operations run in this order.
// Only one thread at a time may issue operations. Abort() and status() are thread-safe. The first
// error poisons the communicator: all waiting and later calls return this error.
//
// An operation accesses the caller's memory only between its issue and the return of Wait(). After
// Abort() has returned, the CPU backends do not write to the caller's memory. nccl/nccl.h has the
// rules for NCCL.
//
// The order of additions in a reduction depends only on the ranks, their hosts and the sizes, never
// on timing. All ranks get bit-identical results.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "muster/reduce_op.h"
#include "muster/status.h"

namespace muster {
class FlightRecorder;
}

namespace muster::collective {

struct Signature;

enum class DataType : uint8_t { kFloat32 = 0, kFloat64, kFloat16, kBFloat16, kInt64, kByte };

int64_t SizeOf(DataType type);
std::string_view DataTypeName(DataType type);  // "float32", ...
std::string_view ReduceOpName(ReduceOp op);    // "sum", ...

// `count` contiguous elements at `data`. For NCCL, `data` is in the memory of the communicator's
// device. For all other backends, `data` is in host memory.
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
  // If the deadline was missed, the error names the ranks that did not join the operation. A
  // communicator can have a progress thread, which runs the operations. Without a progress thread,
  // Wait runs this operation, after all operations that were issued earlier. With NCCL, Wait blocks
  // the calling thread until the device is done. May be called more than once.
  virtual absl::Status Wait() = 0;
  virtual bool Done() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

class Communicator {
 public:
  virtual ~Communicator() = default;  // Aborts operations in progress.

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns a description for logs, such as "shared memory, 2 ranks".
  virtual std::string Describe() const = 0;

  // Reduces `buffer` in place. kMean divides the sum by size(). For kInt64, the division truncates
  // towards zero. kByte cannot be reduced.
  virtual WorkPtr AllReduce(Buffer buffer, ReduceOp op) = 0;
  // Overwrites `buffer` with the `buffer` of the rank `root`. Supports every type.
  virtual WorkPtr Broadcast(Buffer buffer, int root) = 0;
  // Copies `send` of each rank r to index r * send.count of every rank's `receive`. REQUIRES:
  // receive.count == send.count * size().
  virtual WorkPtr AllGather(Buffer send, Buffer receive) = 0;
  // Reduces `send` of all ranks, and splits the result into size() equal parts. Rank r receives
  // part r. REQUIRES: send.count == receive.count * size().
  virtual WorkPtr ReduceScatter(Buffer send, Buffer receive, ReduceOp op) = 0;
  virtual WorkPtr Barrier() = 0;

  // Allocates memory for buffers that AllReduce of this communicator reduces without a copy.
  // Returns null if the backend has no such memory. The memory is valid until the communicator is
  // destroyed. A communicator of another generation must not use the memory.
  virtual std::shared_ptr<void> AllocateReducible(int64_t /*bytes*/) { return nullptr; }

  // Poisons the communicator with `why`. Blocks until no thread of the communicator accesses the
  // caller's memory.
  virtual void Abort(absl::Status why) = 0;
  // Returns OK, or the error that poisoned the communicator.
  virtual absl::Status status() const = 0;

  // Sets the timeout of each operation issued after this call. The timeout starts when the
  // operation is issued or, without a progress thread, when Wait() runs the operation.
  virtual void set_timeout(Duration timeout) = 0;

  // The following three functions are for a communicator between replicas or GPUs, which uses this
  // communicator to connect the processes of the replicas. They have an effect only if
  // MakeCommunicator (engines/engine.h) made this communicator.
  //
  // Returns the name of each rank, for messages. May be empty.
  virtual std::vector<std::string> labels() const { return {}; }
  // Removes the recorder from this communicator and returns it. The caller records the operations
  // of the replicas instead. May return null.
  virtual std::shared_ptr<FlightRecorder> TakeRecorder() { return nullptr; }
  // Until the next call of IssueFor, marks every operation that this communicator issues as a part
  // of the replicas' operation `asked` (Signature::for_replicas in operation.h). The ranks also
  // compare `asked`.
  virtual void IssueFor(const Signature& /*asked*/) {}
};

}  // namespace muster::collective
