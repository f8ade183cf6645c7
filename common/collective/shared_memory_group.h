// Ranks that share memory: threads of one process, or processes of one host that share a segment.
// Internal to the collective library.
//
// Each rank has a cell in the shared memory. The cell's word counts the phases that the rank has
// reached. The other ranks wait on that word, with a short spin and then a futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/operation.h"

namespace muster::collective {

// Payloads up to this size travel beside the signature.
inline constexpr int64_t kSmallBytes = 2048;

// The data that a rank publishes when it joins an operation. A cell has two, used in turn. A rank
// overwrites one only after all ranks have joined the operation in between, and so have left the
// operation before it.
struct alignas(64) Announcement {
  Signature signature;
  int64_t where = -1;  // An address (threads), an offset in the arenas (processes), or -1.
  unsigned char spare[24] = {};
  std::byte payload[kSmallBytes];
};

struct alignas(64) Cell {
  std::atomic<uint32_t> word{0};     // Bit 0: poisoned. The other bits: number of phases, wrapping.
  std::atomic<uint32_t> waiters{0};  // Number of threads that sleep on the word.
  // Nonzero while inside a copy or reduction of any rank's memory.
  alignas(64) std::atomic<uint32_t> busy{0};
  Announcement announcements[2];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct SharedMemoryGroupOptions {
  std::span<Cell> cells;  // By rank, in shared memory.
  int rank = 0;
  std::vector<std::string> names;  // For messages, such as "rank 1 (worker:0)".
  bool spin = false;
  bool processes = false;  // True when the cells are shared between processes.
  // Called every 20 ms during a wait. `Awaited` tells whether a rank is still waited for. An error
  // ends the wait. May be null.
  using Awaited = std::function<bool(int rank)>;
  std::function<absl::Status(const Awaited&, const Signature&, MonotonicTime started)> check;
  // Translates another rank's Announcement::where to an address in this process.
  std::function<std::byte*(int rank, int64_t where)> address;
};

// One rank's view of the group. Not thread-safe, except for Poison().
class SharedMemoryGroup {
 public:
  explicit SharedMemoryGroup(SharedMemoryGroupOptions options) : options_(std::move(options)) {}
  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.cells.size()); }

  // Joins an operation, waits until all ranks have joined, then compares the signatures.
  absl::Status Begin(const Signature& signature, int64_t where, std::span<const std::byte> payload,
                     MonotonicTime deadline);
  // Returns where a rank announced its memory, or -1 when that memory is not shared. Valid after
  // Begin.
  int64_t WhereOf(int rank) const { return Current(rank).where; }

  // Bytes that this rank contributes to `plan`. Up to kSmallBytes, Begin's exchange carries the
  // data: pass Small(plan) as payload, then call RunSmall.
  static int64_t ContributionBytes(const Plan& plan);
  std::vector<std::byte> Small(const Plan& plan) const;
  void RunSmall(const Plan& plan);
  // Runs `plan` where the memory of all ranks is shared. Each rank reduces its part straight from
  // and to that memory.
  absl::Status RunDirect(const Plan& plan, MonotonicTime deadline);
  static const std::byte* DirectBase(const Plan& plan, int rank) {
    return plan.reduce ? plan.parts[0].send : plan.parts[rank].send;
  }

  // Marks one more phase as reached by this rank. Returns its number.
  uint32_t Arrive();
  uint32_t phase() const { return phase_; }
  // Blocks until all ranks have reached `phase`.
  absl::Status WaitAll(uint32_t phase, MonotonicTime deadline);

  // Wakes every rank. Their waits end with Superseded. Thread-safe.
  void Poison();
  bool poisoned() const;
  // Returns when no rank is inside a copy or reduction, within the time of one chunk. For threads
  // only. Called after Poison.
  void Quiesce() const;
  // Runs `body`, which touches memory of several ranks. When poisoned, returns false without
  // running it.
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
  uint32_t phase_ = 0;       // Of this rank.
  uint32_t begun_ = 0;       // The first phase of the current operation.
  uint64_t operations_ = 0;  // Number of operations begun.
  Signature signature_;      // Of the current operation.
  MonotonicTime started_{};
};

}  // namespace muster::collective
