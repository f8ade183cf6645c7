// Tests of the Communicator contract, as cases for every backend. Each rank runs a case on a thread
// or in a process of its own. Buffers are in host memory or in a device's memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"

namespace muster::testing {

// The memory of a rank's buffers.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;
  virtual std::shared_ptr<void> Allocate(int64_t bytes) = 0;
  // `to` and `from` may be in this memory or in host memory.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
};
BufferMemory& HostBuffers();

struct ContractRank {
  std::unique_ptr<collective::Communicator>& communicator;
  BufferMemory& memory;
  // A counter that all ranks of the group share, across processes. 0 at the start of a case.
  std::atomic<int>& count;
  // Returns the name of a rank in this backend's error messages. Returns "" if they name processes.
  std::function<std::string(int rank)> name_of;
  // The ranks compare their operations on the host (NCCL).
  bool compares_beside = false;

  // Copies, because a case may destroy the communicator.
  const int rank = communicator->rank(), size = communicator->size();
};

struct ContractCase {
  std::string name;
  std::function<void(ContractRank&)> run;
  int ranks = 0;  // The number of ranks. 0: the case runs with each number from 1 to 5.
  Duration timeout = std::chrono::minutes(2);  // The limit of an operation.
};

// Cases without failures, for any number of ranks.
const std::vector<ContractCase>& ContractCases();
// Cases with a failing rank, for two ranks or more. The other ranks must not hang, and their errors
// must name the failed rank.
const std::vector<ContractCase>& FailureCases();

// Runs a case as one rank, on a thread of its own. All ranks of a new group run the same case. A
// rank that fails wakes the others.
void RunCase(const ContractCase& one, ContractRank& rank);
// Runs a case with one thread for each of these communicators.
void RunCaseOnThreads(const ContractCase& one,
                      std::vector<std::unique_ptr<collective::Communicator>>& ranks,
                      const std::function<std::string(int)>& name_of, bool compares_beside = false);

// The rest is for the cases. A Placed is bytes in the memory of a rank.
class Placed {
 public:
  Placed(ContractRank& rank, const void* from, int64_t bytes);
  Placed(ContractRank& rank, const std::vector<std::byte>& bytes)
      : Placed(rank, bytes.data(), static_cast<int64_t>(bytes.size())) {}
  void* data() const { return data_.get(); }
  collective::Buffer As(int64_t count, collective::DataType type) const {
    return {data_.get(), count, type};
  }
  std::vector<std::byte> Read() const;

 private:
  BufferMemory& memory_;
  const int64_t bytes_;
  const std::shared_ptr<void> data_;
};
// Returns `count` elements whose bits are all zero.
Placed Zeros(ContractRank& rank, int64_t count, collective::DataType type);
// Blocks until ContractRank::count has reached `count`.
void AwaitCount(ContractRank& rank, int count);

}  // namespace muster::testing
