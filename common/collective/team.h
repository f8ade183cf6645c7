// Ranks that share memory: threads of one process, or processes of one host with a segment. Each
// rank has a cell in the shared memory; its word counts the phases that the rank has reached, and
// is what the others wait on: a short spin, then a futex. Internal to the collective library.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/collective/operation.h"

namespace muster::collective {

inline constexpr int64_t kSmallBytes = 2048;  // travels beside the signature

// What a rank says when it comes to an operation. Two, used in turn: a rank overwrites one only
// after all have come to the operation in between, thus left the one before it.
struct alignas(64) Announcement {
  Signature signature;
  int64_t where = -1;  // an address (threads), an offset in the arenas (processes), or neither
  unsigned char spare[24] = {};
  std::byte payload[kSmallBytes];
};

struct alignas(64) Cell {
  std::atomic<uint32_t> word{0};     // bit 0: poisoned; above it the number of phases, wrapping
  std::atomic<uint32_t> waiters{0};  // sleeping on the word
  alignas(64) std::atomic<uint32_t> busy{0};  // inside a copy or reduction of anybody's memory
  Announcement announcements[2];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct TeamOptions {
  std::span<Cell> cells;  // by rank, in shared memory
  int rank = 0;
  std::vector<std::string> names;  // for messages: "rank 1 (worker:0)"
  bool spin = false;
  bool processes = false;  // the cells are shared between processes
  // Asked every 20 ms of a wait, with what tells whether a rank is waited for; an error ends it.
  // May be null.
  using Awaited = std::function<bool(int rank)>;
  std::function<absl::Status(const Awaited&, const Signature&, MonotonicTime started)> check;
  // Translates another rank's Announcement::where to an address here.
  std::function<std::byte*(int rank, int64_t where)> address;
};

// One rank's view. One thread at a time, but Poison: any thread.
class Team {
 public:
  explicit Team(TeamOptions options) : options_(std::move(options)) {}
  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.cells.size()); }

  // Comes to an operation and waits until all have, then compares signatures.
  absl::Status Begin(const Signature& signature, int64_t where, std::span<const std::byte> payload,
                     MonotonicTime deadline);
  // Where the ranks said their memory is, after Begin. -1: not shared.
  int64_t WhereOf(int rank) const { return Current(rank).where; }

  // Bytes that this rank contributes to `plan`; up to kSmallBytes it is done by Begin's exchange:
  // announce Small(plan), then RunSmall.
  static int64_t ContributionBytes(const Plan& plan);
  std::vector<std::byte> Small(const Plan& plan) const;
  void RunSmall(const Plan& plan);
  // All ranks' memory is at hand: each reduces its part straight from and to all of it.
  absl::Status RunDirect(const Plan& plan, MonotonicTime deadline);
  static const std::byte* DirectBase(const Plan& plan, int rank) {
    return plan.reduce ? plan.parts[0].send : plan.parts[rank].send;
  }

  // One more phase reached by this rank. Returns its number.
  uint32_t Arrive();
  uint32_t phase() const { return phase_; }
  // Until all ranks have reached `phase`.
  absl::Status WaitAll(uint32_t phase, MonotonicTime deadline);

  // Wakes every rank; their waits end with Superseded.
  void Poison();
  bool poisoned() const;
  // After Poison: returns when no rank is inside a copy or reduction. Threads only; bounded by the
  // time of one chunk.
  void Quiesce() const;
  // The body touches memory of several ranks: false, without running it, when poisoned.
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

  const TeamOptions options_;
  uint32_t phase_ = 0;       // of this rank
  uint32_t begun_ = 0;       // the first phase of the operation under way
  uint64_t operations_ = 0;  // begun so far
  Signature signature_;      // of the operation under way
  MonotonicTime started_{};
};

}  // namespace muster::collective
