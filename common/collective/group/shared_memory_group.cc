#include "common/collective/group/shared_memory_group.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace muster::collective {
namespace {

constexpr Duration kCheckEvery = std::chrono::milliseconds(20);
constexpr Duration kSpinFor = std::chrono::microseconds(200);
constexpr int kShortSpins = 64;            // About a microsecond.
constexpr int64_t kDirectBytes = 1 << 18;  // Bytes between two checks of the poison.

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Duration limit, bool processes) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, &word, processes ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, expected, &timeout,
          nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word, bool processes) {
  syscall(SYS_futex, &word, processes ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

uint32_t SharedMemoryGroup::Arrive() {
  Cell& mine = options_.cells[options_.rank];
  mine.word.fetch_add(2, std::memory_order_seq_cst);
  if (mine.waiters.load(std::memory_order_seq_cst) > 0) FutexWake(mine.word, options_.processes);
  return ++phase_;
}

bool SharedMemoryGroup::poisoned() const {
  return (options_.cells[options_.rank].word.load(std::memory_order_seq_cst) & 1) != 0;
}

void SharedMemoryGroup::Poison() {
  for (Cell& cell : options_.cells) {
    cell.word.fetch_or(1, std::memory_order_seq_cst);
    FutexWake(cell.word, options_.processes);
  }
}

void SharedMemoryGroup::Quiesce() const {
  for (const Cell& cell : options_.cells) {
    while (cell.busy.load(std::memory_order_seq_cst) != 0) sched_yield();
  }
}

absl::Status SharedMemoryGroup::WaitAll(uint32_t phase, MonotonicTime deadline) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || Reached(r, phase)) continue;
    MUSTER_RETURN_IF_ERROR(WaitOne(r, phase, deadline));
  }
  // If the group is poisoned at this point, this wait succeeds and the next one fails.
  return absl::OkStatus();
}

absl::Status SharedMemoryGroup::WaitOne(int rank, uint32_t phase, MonotonicTime deadline) {
  Cell& cell = options_.cells[rank];
  for (int i = 0; i < kShortSpins; ++i) {
    if (Reached(rank, phase)) return absl::OkStatus();
    Pause();
  }
  if (options_.spin) {
    const MonotonicTime until = Clock::now() + kSpinFor;
    do {
      for (int i = 0; i < kShortSpins; ++i) {
        if (Reached(rank, phase)) return absl::OkStatus();
        Pause();
      }
    } while (Clock::now() < until && !poisoned());
  }
  MonotonicTime check_at = Clock::now() + kCheckEvery;
  for (;;) {
    cell.waiters.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = cell.word.load(std::memory_order_seq_cst);
    const bool reached = Reached(rank, phase);
    const MonotonicTime now = Clock::now();
    if (!reached && (seen & 1) == 0 && now < deadline) {
      const Duration limit = std::min(deadline, check_at) - now;
      if (limit > Duration::zero()) FutexWait(cell.word, seen, limit, options_.processes);
    }
    cell.waiters.fetch_sub(1, std::memory_order_seq_cst);
    if (Reached(rank, phase)) return absl::OkStatus();
    if (poisoned()) return Superseded("another rank gave up");
    const MonotonicTime after = Clock::now();
    if (after >= check_at) {
      check_at = after + kCheckEvery;
      if (options_.check) {
        const auto awaited = [&](int r) { return !Reached(r, phase); };
        const absl::Status status = options_.check(awaited, signature_, started_);
        // The rank may have reached the phase and then left just before this check.
        if (!status.ok()) return Reached(rank, phase) ? absl::OkStatus() : status;
      }
    }
    if (after >= deadline) return Late(phase);
  }
}

absl::Status SharedMemoryGroup::Late(uint32_t phase) const {
  std::string absent, slow;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || Reached(r, phase)) continue;
    std::string& list = Reached(r, begun_) ? slow : absent;
    list += (list.empty() ? "" : ", ") + options_.names[r];
  }
  return DeadlinePassed(fmt::format("{} did not {} {} (operation {}) within {:.3g} s",
                                    absent.empty() ? slow : absent,
                                    absent.empty() ? "finish" : "come to", signature_.Text(),
                                    signature_.sequence, Seconds(Clock::now() - started_)));
}

absl::Status SharedMemoryGroup::Begin(const Signature& signature, int64_t where,
                                      std::span<const std::byte> payload, MonotonicTime deadline) {
  signature_ = signature;
  started_ = Clock::now();
  ++operations_;
  Announcement& mine = options_.cells[rank()].announcements[operations_ & 1];
  mine.signature = signature;
  mine.where = where;
  if (!payload.empty()) std::memcpy(mine.payload, payload.data(), payload.size());
  begun_ = Arrive();
  MUSTER_RETURN_IF_ERROR(WaitAll(begun_, deadline));
  // Every rank compares all signatures with that of rank 0, so all ranks report the same two ranks.
  const Signature& first = Current(0).signature;
  for (int r = 1; r < size(); ++r) {
    if (Current(r).signature == first) continue;
    return MismatchError(options_.names[0], first, options_.names[r], Current(r).signature);
  }
  return absl::OkStatus();
}

int64_t SharedMemoryGroup::ContributionBytes(const Plan& plan) {
  if (plan.reduce) return plan.count * SizeOf(plan.type);
  // Without a reduction, only the owners of parts contribute. Returns the size of the largest part,
  // so all ranks take the same decision.
  int64_t largest = 0;
  for (const RankPart& part : plan.parts) largest = std::max(largest, part.count);
  return largest * SizeOf(plan.type);
}

std::vector<std::byte> SharedMemoryGroup::Small(const Plan& plan) const {
  std::vector<std::byte> payload(ContributionBytes(plan));
  const int64_t element = SizeOf(plan.type);
  if (!plan.reduce) {
    const RankPart& mine = plan.parts[rank()];
    if (mine.count > 0) std::memcpy(payload.data(), mine.send, mine.count * element);
    return payload;
  }
  size_t at = 0;
  for (const RankPart& part : plan.parts) {
    if (part.count > 0) std::memcpy(payload.data() + at, part.send, part.count * element);
    at += part.count * element;
  }
  return payload;
}

void SharedMemoryGroup::RunSmall(const Plan& plan) {
  const int64_t element = SizeOf(plan.type);
  std::vector<const void*> sources(size());
  int64_t at = 0;
  for (int p = 0; p < size(); ++p) {
    const RankPart& part = plan.parts[p];
    const bool wanted = part.count > 0 && part.receive != nullptr && (plan.gather || p == rank());
    if (wanted && plan.reduce) {
      for (int r = 0; r < size(); ++r) sources[r] = Current(r).payload + at;
      void* out = part.receive;
      ReduceElements({&out, 1}, sources, part.count, plan.type, plan.reduction);
    } else if (wanted && part.receive != part.send) {
      std::memmove(part.receive, Current(p).payload, part.count * element);
    } else if (wanted && p != rank()) {
      std::memcpy(part.receive, Current(p).payload, part.count * element);
    }
    if (plan.reduce) at += part.count * element;
  }
}

absl::Status SharedMemoryGroup::RunDirect(const Plan& plan, MonotonicTime deadline) {
  const int64_t element = SizeOf(plan.type), step = kDirectBytes / element;
  const RankPart& mine = plan.parts[rank()];
  bool go = true;
  if (plan.reduce) {
    const int64_t offset = mine.send - plan.parts[0].send;
    std::vector<std::byte*> bases(size());
    for (int r = 0; r < size(); ++r) bases[r] = options_.address(r, Current(r).where);
    std::vector<const void*> sources(size());
    std::vector<void*> outs(plan.gather ? size() : 1);
    for (int64_t i = 0; go && i < mine.count; i += step) {
      const int64_t at = offset + i * element;
      for (int r = 0; r < size(); ++r) {
        sources[r] = bases[r] + at;
        if (plan.gather) outs[r] = bases[r] + at;
      }
      if (!plan.gather) outs[0] = mine.receive + i * element;
      go = Touch([&] {
        ReduceElements(outs, sources, std::min(step, mine.count - i), plan.type, plan.reduction);
      });
    }
  } else {
    for (int p = 0; p < size(); ++p) {
      const RankPart& part = plan.parts[p];
      if (part.count == 0 || (p == rank() && part.send == part.receive)) continue;
      const std::byte* from = p == rank() ? part.send : options_.address(p, Current(p).where);
      for (int64_t i = 0; go && i < part.count; i += step) {
        const int64_t bytes = std::min(step, part.count - i) * element;
        go = Touch([&] { std::memmove(part.receive + i * element, from + i * element, bytes); });
      }
    }
  }
  if (!go) return Superseded("another rank gave up");
  return WaitAll(Arrive(), deadline);
}

}  // namespace muster::collective
