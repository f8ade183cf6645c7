// What this process did lately: a ring of its last events (phases, collective operations,
// generations), kept in memory at next to no cost and written down when something went wrong.
//
// What is rare (all but phases and operations) has a ring of its own, so that a generation's
// beginning is still there when it ends.
//
// All methods may be called from any thread. Recording takes no lock, allocates nothing and never
// waits: a slot that another thread is writing just then (a thousand events later) is left to it.
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
  kPhase = 0,         // phase and step from now on
  kCollectiveStart,   // this rank has come to an operation
  kCollectiveEnd,     // it is done
  kCollectiveFailed,  // detail: why
  kForming,           // a generation is being formed; detail: its members
  kFormed,            // the communicators stand; detail: over what
  kNotFormed,         // detail: why
  kStarted,           // all members have formed it
  kAborted,           // detail: why
  kChiefLost,         // detail: why
  kChiefFound,
  kStopRequested,  // a signal, or the coordinator's word
  kVerdict,        // the job has ended; detail: the story
  kFailure,        // of this process's own; detail: what
};
inline constexpr int kNumFlightKinds = 14;
inline constexpr std::string_view kFlightKindNames[kNumFlightKinds] = {
    "phase",   "collective_start", "collective_end", "collective_failed",
    "forming", "formed",           "not_formed",     "started",
    "aborted", "chief_lost",       "chief_found",    "stop_requested",
    "verdict", "failure"};

// A collective operation as one rank issued it. The names live for ever (string literals).
struct CollectiveCall {
  const char* operation = nullptr;  // "all_reduce"
  const char* type = nullptr;       // "float32"
  const char* reduction = nullptr;  // "sum"; null: none
  int64_t count = 0, bytes = 0;
  int32_t root = -1;
  int32_t replica = 0;       // this rank's number in the communicator
  uint64_t sequence = 0;     // in its generation, from 1
  std::string Text() const;  // "all_reduce(float32 x 100, sum)"
};

struct FlightEvent {
  MonotonicTime at;
  uint64_t generation = 0;  // 0: none yet
  int64_t step = 0;         // under way
  CollectiveCall call;      // of the kinds that say so
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint16_t detail_size = 0;
  uint32_t spare = 0;
  char detail[224] = {};  // cut where it is longer
  std::string_view Detail() const { return {detail, detail_size}; }
};
static_assert(sizeof(FlightEvent) % sizeof(uint64_t) == 0);

class FlightRecorder {
 public:
  explicit FlightRecorder(size_t capacity = 1000, size_t rare_capacity = 64);

  void EnterPhase(Phase phase, int64_t step);
  // The events from here on belong to it.
  void EnterGeneration(uint64_t generation, std::string_view members);
  void Note(FlightKind kind, std::string_view detail = {});
  void Starts(const CollectiveCall& call) { Collective(FlightKind::kCollectiveStart, call, {}); }
  // `why` is empty where it went well.
  void Ends(const CollectiveCall& call, std::string_view why) {
    Collective(why.empty() ? FlightKind::kCollectiveEnd : FlightKind::kCollectiveFailed, call, why);
  }

  // Oldest first.
  std::vector<FlightEvent> Events() const;
  // All that were ever recorded, also those that were overwritten.
  uint64_t recorded() const {
    return often_.next.load(std::memory_order_relaxed) + rare_.next.load(std::memory_order_relaxed);
  }

  // Where this process stands in its generation's operations.
  struct Standing {
    bool in_flight = false;
    CollectiveCall call;     // the one under way
    MonotonicTime since;     // ... since then
    uint64_t completed = 0;  // the highest sequence number of a completed one; 0: none
  };
  Standing Stand() const;

 private:
  static constexpr size_t kWords = sizeof(FlightEvent) / sizeof(uint64_t);
  static constexpr size_t kHead = offsetof(FlightEvent, detail) / sizeof(uint64_t);
  struct Slot {
    std::atomic<uint64_t> version{0};  // odd: being written; else 2 * (events recorded here)
    std::atomic<uint64_t> words[kWords];
  };

  struct Ring {
    explicit Ring(size_t size) : capacity(size), slots(new Slot[size]) {}
    // The event with that number, if it is still there whole.
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

// "1.2": the second generation of the chief's epoch 1.
std::string GenerationText(uint64_t generation);

}  // namespace muster
