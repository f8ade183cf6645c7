// Keeps the last events of this process: phases, collective operations, and changes of the
// generation. A generation is a period of training with fixed members. After a failure, the process
// writes the events to a file (flight_record.h).
//
// Phases and collective operations are frequent. All other events are rare. Rare events have their
// own ring buffer, so that frequent events do not overwrite rare events.
//
// All methods are thread-safe. Recording takes no lock, allocates no memory and never waits. If
// another thread is still writing to the same slot of the ring buffer, the new event is dropped.
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
  kPhase = 0,         // The phase or step changed.
  kCollectiveStart,   // A replica of this process entered a collective operation.
  kCollectiveEnd,     // The operation has completed.
  kCollectiveFailed,  // FlightEvent::detail is the reason.
  kForming,           // The members began to connect for a generation. detail: the members.
  kFormed,            // This process has connected its communicators. detail: the transport.
  kNotFormed,         // This process could not connect. detail: the reason.
  kStarted,           // All members have connected. The generation started.
  kAborted,           // The generation ended. detail: the reason.
  kChiefLost,         // This process lost the connection to the chief. detail: the reason.
  kChiefFound,
  kStopRequested,  // A signal or the chief requested a stop.
  kVerdict,        // The job ended. detail: the description of the end.
  kFailure,        // This process failed. detail: the failure.
};
inline constexpr int kNumFlightKinds = 14;
inline constexpr std::string_view kFlightKindNames[kNumFlightKinds] = {
    "phase",   "collective_start", "collective_end", "collective_failed",
    "forming", "formed",           "not_formed",     "started",
    "aborted", "chief_lost",       "chief_found",    "stop_requested",
    "verdict", "failure"};

// A call of a collective operation by one replica. The names are string literals.
struct CollectiveCall {
  const char* operation = nullptr;  // For example "all_reduce".
  const char* type = nullptr;       // For example "float32".
  const char* reduction = nullptr;  // For example "sum". Null if the operation does not reduce.
  int64_t count = 0, bytes = 0;
  int32_t root = -1;         // The rank that broadcasts. -1: none.
  int32_t replica = 0;       // The replica's rank in the communicator.
  uint64_t sequence = 0;     // The number of the operation in its generation, from 1.
  std::string Text() const;  // For example "all_reduce(float32 x 100, sum)".
};

struct FlightEvent {
  MonotonicTime at;
  uint64_t generation = 0;  // 0 before the first generation.
  int64_t step = 0;         // The step at the time of the event.
  CollectiveCall call;      // Set for kCollectiveStart, kCollectiveEnd and kCollectiveFailed.
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint16_t detail_size = 0;
  uint32_t spare = 0;
  char detail[224] = {};  // Truncated if the text is longer.
  std::string_view Detail() const { return {detail, detail_size}; }
};
static_assert(sizeof(FlightEvent) % sizeof(uint64_t) == 0);

class FlightRecorder {
 public:
  // The capacities are numbers of events.
  explicit FlightRecorder(size_t capacity = 1000, size_t rare_capacity = 64);

  void EnterPhase(Phase phase, int64_t step);
  // Sets the generation of all following events, and records kForming with `members` as detail.
  void EnterGeneration(uint64_t generation, std::string_view members);
  void Note(FlightKind kind, std::string_view detail = {});
  void Starts(const CollectiveCall& call) { Collective(FlightKind::kCollectiveStart, call, {}); }
  // Records the end of an operation. `why` is the reason of its failure, or "" after success.
  void Ends(const CollectiveCall& call, std::string_view why) {
    Collective(why.empty() ? FlightKind::kCollectiveEnd : FlightKind::kCollectiveFailed, call, why);
  }

  // Returns the events, oldest first.
  std::vector<FlightEvent> Events() const;
  // Returns the number of all recorded events, including overwritten events.
  uint64_t recorded() const {
    return often_.next.load(std::memory_order_relaxed) + rare_.next.load(std::memory_order_relaxed);
  }

  // Describes the collective operations of this process in the current generation.
  struct Position {
    bool in_flight = false;  // True if an operation is in progress.
    // The operation in progress with the lowest sequence number. Set if in_flight is true.
    CollectiveCall call;
    MonotonicTime since;     // The time at which the replica entered the operation.
    uint64_t completed = 0;  // The highest sequence number of a completed operation, or 0.
  };
  Position CurrentPosition() const;

 private:
  static constexpr size_t kWords = sizeof(FlightEvent) / sizeof(uint64_t);
  static constexpr size_t kHead = offsetof(FlightEvent, detail) / sizeof(uint64_t);
  struct Slot {
    // Odd while a thread writes to the slot. Otherwise twice the number of events that threads have
    // written to the slot.
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> words[kWords];
  };

  struct Ring {
    explicit Ring(size_t size) : capacity(size), slots(new Slot[size]) {}
    // Reads event `number`. Returns false if the event was overwritten.
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

// Returns the generation for messages, such as "1.2". The first number is the chief's term, which
// is above the terms of all earlier chiefs of the run. The second number counts the generations of
// that chief.
std::string GenerationText(uint64_t generation);

}  // namespace muster
