// A ring of the process's last events (phases, collective operations, generations). It is kept in
// memory at almost no cost, and written to a file after a failure.
//
// Rare events (all except phases and operations) have a separate ring, so that the start of a
// generation is still available at its end.
//
// All methods are thread-safe. Recording takes no lock, allocates nothing and never waits. If
// another thread is writing the same slot (a thousand events later), the event is dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/phase.h"

namespace muster {

enum class FlightKind : uint8_t {
  kPhase = 0,         // Phase and step from now on.
  kCollectiveStart,   // This rank has entered an operation.
  kCollectiveEnd,     // The operation is complete.
  kCollectiveFailed,  // detail: the reason.
  kForming,           // A generation is being formed. detail: its members.
  kFormed,            // The communicators are connected. detail: the transport.
  kNotFormed,         // detail: the reason.
  kStarted,           // All members have formed the generation.
  kAborted,           // detail: the reason.
  kChiefLost,         // detail: the reason.
  kChiefFound,
  kStopRequested,  // By a signal or by the coordinator.
  kVerdict,        // The job has ended. detail: the story.
  kFailure,        // This process failed. detail: the failure.
};
inline constexpr int kNumFlightKinds = 14;
inline constexpr std::string_view kFlightKindNames[kNumFlightKinds] = {
    "phase",   "collective_start", "collective_end", "collective_failed",
    "forming", "formed",           "not_formed",     "started",
    "aborted", "chief_lost",       "chief_found",    "stop_requested",
    "verdict", "failure"};

// A collective operation as one rank issued it. The names are string literals, valid for the life
// of the process.
struct CollectiveCall {
  const char* operation = nullptr;  // "all_reduce".
  const char* type = nullptr;       // "float32".
  const char* reduction = nullptr;  // "sum". Null: none.
  int64_t count = 0, bytes = 0;
  int32_t root = -1;
  int32_t replica = 0;       // This rank's number in the communicator.
  uint64_t sequence = 0;     // In its generation, from 1.
  std::string Text() const;  // "all_reduce(float32 x 100, sum)".
};

struct FlightEvent {
  MonotonicTime at;
  uint64_t generation = 0;  // 0: none yet.
  int64_t step = 0;         // The current step.
  CollectiveCall call;      // Set for the collective kinds.
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint16_t detail_size = 0;
  uint32_t spare = 0;
  char detail[224] = {};  // Truncated if it is longer.
  std::string_view Detail() const { return {detail, detail_size}; }
};
static_assert(sizeof(FlightEvent) % sizeof(uint64_t) == 0);

class FlightRecorder {
 public:
  explicit FlightRecorder(size_t capacity = 1000, size_t rare_capacity = 64);

  void EnterPhase(Phase phase, int64_t step);
  // Assigns later events to the generation.
  void EnterGeneration(uint64_t generation, std::string_view members);
  void Note(FlightKind kind, std::string_view detail = {});
  void Starts(const CollectiveCall& call) { Collective(FlightKind::kCollectiveStart, call, {}); }
  // `why` is empty if the operation succeeded.
  void Ends(const CollectiveCall& call, std::string_view why) {
    Collective(why.empty() ? FlightKind::kCollectiveEnd : FlightKind::kCollectiveFailed, call, why);
  }

  // Returns the events, oldest first.
  std::vector<FlightEvent> Events() const;
  // The number of all events ever recorded, including overwritten ones.
  uint64_t recorded() const {
    return often_.next.load(std::memory_order_relaxed) + rare_.next.load(std::memory_order_relaxed);
  }

  // The position of this process in its generation's operations.
  struct Standing {
    bool in_flight = false;
    CollectiveCall call;     // The operation in progress.
    MonotonicTime since;     // When it was entered.
    uint64_t completed = 0;  // The highest sequence number of a completed operation. 0: none.
  };
  Standing Stand() const;

 private:
  static constexpr size_t kWords = sizeof(FlightEvent) / sizeof(uint64_t);
  static constexpr size_t kHead = offsetof(FlightEvent, detail) / sizeof(uint64_t);
  struct Slot {
    // Odd: being written. Even: 2 * (events recorded in this slot).
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> words[kWords];
  };

  struct Ring {
    explicit Ring(size_t size) : capacity(size), slots(new Slot[size]) {}
    // Reads the event with that number, if it is still complete.
    bool Read(uint64_t number, FlightEvent* event) const;
    const size_t capacity;
    const std::unique_ptr<Slot[]> slots;
    std::atomic<uint64_t> next{0};
  };

  void Collective(FlightKind kind, const CollectiveCall& call, std::string_view detail);
  void Record(Ring* ring, FlightEvent* event, std::string_view detail);

  Ring often_, rare_;
  std::atomic<uint64_t> generation_{0}, completed_{0};
  std::atomic<int64_t> step_{0};
  std::atomic<uint8_t> phase_{0};
};

// Returns "1.2" for the second generation of the chief's epoch 1.
std::string GenerationText(uint64_t generation);

}  // namespace muster
