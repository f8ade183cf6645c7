// Synchronizes ranks that share memory: threads of one process, or processes of one host that share
// a segment. Internal.
//
// Each rank has a cell in the shared memory. A word in the cell counts the phases that the rank has
// reached. Other ranks wait until this number is high enough: they spin for a short time, then
// sleep on a futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/operation.h"

namespace muster::collective {

// The maximum size of data in an Announcement.
inline constexpr int64_t kSmallBytes = 2048;

// The data that a rank publishes when it joins an operation. A cell has two announcements:
// operation n uses announcement n mod 2. A rank joins operation n + 2 only after all ranks have
// joined operation n + 1. By then, no rank reads the announcements of operation n any more.
struct alignas(64) Announcement {
  Signature signature;
  // The rank's memory: an address (threads), an offset in the arenas (processes), or -1 if the
  // memory is not shared.
  int64_t where = -1;
  unsigned char spare[24] = {};
  std::byte payload[kSmallBytes];
};

struct alignas(64) Cell {
  std::atomic<uint32_t> word{0};     // Bit 0: poisoned. Other bits: the number of phases, wrapping.
  std::atomic<uint32_t> waiters{0};  // The number of threads that sleep on the word.
  // Nonzero while this rank copies or reduces memory of any rank.
  alignas(64) std::atomic<uint32_t> busy{0};
  Announcement announcements[2];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct SharedMemoryGroupOptions {
  std::span<Cell> cells;  // By rank, in shared memory.
  int rank = 0;
  std::vector<std::string> names;  // The name of each rank for messages: "rank 1 (worker:0)".
  bool spin = false;
  bool processes = false;  // True if the cells are shared between processes.
  // Called every 20 ms during a wait. An error ends the wait. An Awaited function returns whether
  // this rank still waits for `rank`. May be null.
  using Awaited = std::function<bool(int rank)>;
  std::function<absl::Status(const Awaited&, const Signature&, MonotonicTime started)> check;
  // Translates another rank's Announcement::where to an address in this process.
  std::function<std::byte*(int rank, int64_t where)> address;
};

// One rank's access to the group. Not thread-safe, except for Poison().
class SharedMemoryGroup {
 public:
  explicit SharedMemoryGroup(SharedMemoryGroupOptions options) : options_(std::move(options)) {}
  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.cells.size()); }

  // Joins an operation, blocks until all ranks have joined, and compares their signatures. `where`
  // and `payload` are those of this rank's Announcement.
  absl::Status Begin(const Signature& signature, int64_t where, std::span<const std::byte> payload,
                     MonotonicTime deadline);
  // Returns Announcement::where of `rank` for the current operation. Called after Begin.
  int64_t WhereOf(int rank) const { return Current(rank).where; }

  // Returns the size of the data that this rank contributes to `plan`. If it is at most
  // kSmallBytes, announcements carry the data: the caller passes Small(plan) to Begin as payload,
  // then calls RunSmall.
  static int64_t ContributionBytes(const Plan& plan);
  std::vector<std::byte> Small(const Plan& plan) const;
  void RunSmall(const Plan& plan);
  // Runs `plan` without copies: each rank reduces its part directly in the memory of all ranks.
  // REQUIRES: the memory of all ranks is shared.
  absl::Status RunDirect(const Plan& plan, MonotonicTime deadline);
  static const std::byte* DirectBase(const Plan& plan, int rank) {
    return plan.reduce ? plan.parts[0].send : plan.parts[rank].send;
  }

  // Reports that this rank has reached the next phase. Returns the number of that phase.
  uint32_t Arrive();
  uint32_t phase() const { return phase_; }
  // Blocks until all ranks have reached `phase`.
  absl::Status WaitAll(uint32_t phase, MonotonicTime deadline);

  // Wakes all ranks. Their waits return Superseded. Thread-safe.
  void Poison();
  bool poisoned() const;
  // Blocks until no rank copies or reduces memory, which takes no longer than one chunk. Called
  // after Poison. Only for threads of one process.
  void Quiesce() const;
  // Runs `body`, which accesses memory of several ranks. If the group is poisoned, returns false
  // without running it.
  template <typename Body>
  bool Touch(Body&& body) {
    std::atomic<uint32_t>& busy = options_.cells[options_.rank].busy;
    busy.store(1, std::memory_order_seq_cst);
    const bool go = !poisoned();
    if (go) body();
    busy.store(0, std::memory_order_release);
    return go;
  }

 private:
  const Announcement& Current(int rank) const {
    return options_.cells[rank].announcements[operations_ & 1];
  }
  bool Reached(int rank, uint32_t phase) const {
    const uint32_t word = options_.cells[rank].word.load(std::memory_order_acquire);
    return static_cast<int32_t>((word & ~1u) - phase * 2) >= 0;
  }
  absl::Status WaitOne(int rank, uint32_t phase, MonotonicTime deadline);
  absl::Status Late(uint32_t phase) const;

  const SharedMemoryGroupOptions options_;
  uint32_t phase_ = 0;       // The latest phase that this rank has reached.
  uint32_t begun_ = 0;       // The first phase of the current operation.
  uint64_t operations_ = 0;  // The number of operations that this rank has joined.
  Signature signature_;      // The signature of the current operation.
  MonotonicTime started_{};
};

}  // namespace muster::collective
