// Synchronizes ranks that share memory: threads of one process, or processes of one host that share
// a segment. Internal.
//
// Each rank has a cell in the shared memory. An operation consists of phases, and a word in the
// cell counts the phases that the rank has reached. Other ranks wait until this number is high
// enough: they poll the number for a short time, then sleep on a futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/operation.h"

namespace muster::collective {

// The maximum size in bytes of the data in an Announcement.
inline constexpr int64_t kSmallBytes = 2048;

// The data that a rank publishes when it joins an operation. A cell has two announcements:
// operation n uses announcement n mod 2. A rank joins operation n + 2 only after all ranks have
// joined operation n + 1. By then, no rank reads the announcements of operation n any more.
struct alignas(64) Announcement {
  Signature signature;
  // The location of the rank's buffer. For threads: an address. For processes: an offset in the
  // rank's arena (segment.h). -1: the buffer is not in shared memory.
  int64_t where = -1;
  unsigned char spare[24] = {};
  std::byte payload[kSmallBytes];
};

struct alignas(64) Cell {
  // Bit 0: a rank gave up (the group is poisoned). Other bits: the number of phases, which wraps
  // around.
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> waiters{0};  // The number of threads that sleep on `word`.
  // Nonzero while this rank copies or reduces memory of any rank.
  alignas(64) std::atomic<uint32_t> busy{0};
  Announcement announcements[2];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct SharedMemoryGroupOptions {
  std::span<Cell> cells;  // Indexed by rank. In shared memory.
  int rank = 0;
  std::vector<std::string> names;  // The name of each rank, for messages: "rank 1 (worker:0)".
  bool spin = false;
  bool processes = false;  // True if the cells are shared between processes.
  // `check` is called every 20 ms during a wait, and ends the wait if it returns an error. May be
  // null. An Awaited function returns whether this rank still waits for `rank`.
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
  // and `payload` become the fields of this rank's Announcement.
  absl::Status Begin(const Signature& signature, int64_t where, std::span<const std::byte> payload,
                     MonotonicTime deadline);
  // Returns Announcement::where of `rank` for the current operation. Called after Begin.
  int64_t WhereOf(int rank) const { return Current(rank).where; }

  // Returns the size in bytes of the data that a rank contributes to `plan`. The result is equal on
  // all ranks. If the size is at most kSmallBytes, the announcements carry the data: the caller
  // passes Small(plan) to Begin as `payload`, and then calls RunSmall.
  static int64_t ContributionBytes(const Plan& plan);
  std::vector<std::byte> Small(const Plan& plan) const;
  void RunSmall(const Plan& plan);
  // Runs `plan` without copies: each rank reduces its own part directly in the memory of all ranks.
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

  // Wakes all ranks, and makes their waits return Superseded. Thread-safe.
  void Poison();
  bool poisoned() const;
  // Blocks until no rank copies or reduces memory in Touch. Must be called after Poison, so that no
  // rank begins another Touch. Only for threads of one process.
  void Quiesce() const;
  // Runs `body`, which accesses memory of several ranks. If the group is poisoned, returns false
  // and does not run `body`.
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
