// The communicator's contract as cases that one rank runs: over every backend, on threads or in
// processes of their own, in host memory or a device's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"

namespace muster::testing {

// Where the buffers of a rank lie.
class BufferMemory {
 public:
  virtual ~BufferMemory() = default;
  virtual std::shared_ptr<void> Allocate(int64_t bytes) = 0;
  // Either of the two may be host memory.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
};
BufferMemory& HostBuffers();

struct ContractRank {
  std::unique_ptr<Communicator>& communicator;
  BufferMemory& memory;
  // Of all ranks of the group, 0 as a case begins; in memory that their processes share.
  std::atomic<int>& count;
  // By which this backend's messages call a rank; empty: by its process.
  std::function<std::string(int rank)> name_of;
  // Ranks meet on the host, in a comparison of what they issued (NCCL).
  bool compares_beside = false;

  // Kept, for a case may destroy the communicator.
  const int rank = communicator->rank(), size = communicator->size();
};

struct ContractCase {
  std::string name;
  std::function<void(ContractRank&)> run;
  int ranks = 0;  // with which it runs where there may be any number; 0: with all of 1 to 5
  Duration timeout = std::chrono::seconds(20);  // of an operation
};

// What is promised of communicators that are well, with any number of ranks.
const std::vector<ContractCase>& ContractCases();
// Of those that fail, with two ranks or more: the others do not hang, and are told whom to blame.
const std::vector<ContractCase>& FailureCases();

// By one rank, on a thread of its own; all ranks run the same one, of a new group. A rank that
// fails wakes the others.
void RunCase(const ContractCase& one, ContractRank& rank);
// On one thread for each of these communicators.
void RunCaseOnThreads(const ContractCase& one, std::vector<std::unique_ptr<Communicator>>& ranks,
                      const std::function<std::string(int)>& name_of, bool compares_beside = false);

// What the cases share.
// Bytes in the memory of a rank.
class Placed {
 public:
  Placed(ContractRank& rank, const void* from, int64_t bytes);
  Placed(ContractRank& rank, const std::vector<std::byte>& bytes)
      : Placed(rank, bytes.data(), static_cast<int64_t>(bytes.size())) {}
  void* data() const { return data_.get(); }
  Buffer As(int64_t count, DataType type) const { return {data_.get(), count, type}; }
  std::vector<std::byte> Read() const;

 private:
  BufferMemory& memory_;
  const int64_t bytes_;
  const std::shared_ptr<void> data_;
};
// Elements of zero bits.
Placed Zeros(ContractRank& rank, int64_t count, DataType type);
// Until all ranks together have counted so far.
void AwaitCount(ContractRank& rank, int count);

}  // namespace muster::testing
