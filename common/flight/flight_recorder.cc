#include "common/flight/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace muster {

std::string CollectiveCall::Text() const {
  if (operation == nullptr) return "";
  if (type == nullptr) return fmt::format("{}()", operation);
  std::string text = fmt::format("{}({} x {}", operation, type, count);
  if (root >= 0) text += fmt::format(" from rank {}", root);
  if (reduction != nullptr) text += fmt::format(", {}", reduction);
  return text + ")";
}

std::string GenerationText(uint64_t generation) {
  return fmt::format("{}.{}", generation >> 32, generation & 0xffffffff);
}

FlightRecorder::FlightRecorder(size_t capacity, size_t rare_capacity)
    : often_(std::max<size_t>(1, capacity)), rare_(std::max<size_t>(1, rare_capacity)) {}

void FlightRecorder::Record(Ring* ring, FlightEvent* event, std::string_view detail) {
  event->at = Clock::now();
  event->generation = generation_.load(std::memory_order_relaxed);
  event->step = step_.load(std::memory_order_relaxed);
  event->phase = static_cast<Phase>(phase_.load(std::memory_order_relaxed));
  event->detail_size = static_cast<uint16_t>(std::min(detail.size(), sizeof event->detail));
  if (event->detail_size > 0) std::memcpy(event->detail, detail.data(), event->detail_size);
  const size_t words = event->detail_size > 0 ? kWords : kHead;
  uint64_t copy[kWords];
  std::memcpy(copy, event, words * sizeof(uint64_t));

  const uint64_t number = ring->next.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = ring->slots[number % ring->capacity];
  const uint64_t mine = 2 * (number / ring->capacity + 1);
  uint64_t version = slot.version.load(std::memory_order_relaxed);
  // Drops this event if the slot has a newer event, or if another thread is writing to the slot.
  if ((version & 1) != 0 || version >= mine ||
      !slot.version.compare_exchange_strong(version, mine - 1, std::memory_order_acquire))
    return;
  // A reader that reads one of these new words then also reads the odd version.
  for (size_t i = 0; i < words; ++i) slot.words[i].store(copy[i], std::memory_order_release);
  slot.version.store(mine, std::memory_order_release);
}

bool FlightRecorder::Ring::Read(uint64_t number, FlightEvent* event) const {
  const Slot& slot = slots[number % capacity];
  const uint64_t want = 2 * (number / capacity + 1);
  if (slot.version.load(std::memory_order_acquire) != want) return false;
  uint64_t copy[kWords] = {};
  for (size_t i = 0; i < kHead; ++i) copy[i] = slot.words[i].load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(event), copy, kHead * sizeof(uint64_t));
  if (event->detail_size > 0) {
    for (size_t i = kHead; i < kWords; ++i) copy[i] = slot.words[i].load(std::memory_order_acquire);
    std::memcpy(event->detail, copy + kHead, sizeof event->detail);
  }
  return slot.version.load(std::memory_order_relaxed) == want;
}

void FlightRecorder::EnterPhase(Phase phase, int64_t step) {
  phase_.store(static_cast<uint8_t>(phase), std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  FlightEvent event;
  Record(&often_, &event, {});
}

void FlightRecorder::EnterGeneration(uint64_t generation, std::string_view members) {
  generation_.store(generation, std::memory_order_relaxed);
  completed_.store(0, std::memory_order_relaxed);
  Note(FlightKind::kForming, members);
}

void FlightRecorder::Note(FlightKind kind, std::string_view detail) {
  FlightEvent event;
  event.kind = kind;
  Record(&rare_, &event, detail);
}

void FlightRecorder::Collective(FlightKind kind, const CollectiveCall& call,
                                std::string_view detail) {
  FlightEvent event;
  event.kind = kind;
  event.call = call;
  Record(&often_, &event, detail);
  if (kind != FlightKind::kCollectiveEnd) return;
  uint64_t before = completed_.load(std::memory_order_relaxed);
  while (before < call.sequence &&
         !completed_.compare_exchange_weak(before, call.sequence, std::memory_order_relaxed)) {
  }
}

std::vector<FlightEvent> FlightRecorder::Events() const {
  std::vector<FlightEvent> events;
  events.reserve(often_.capacity + rare_.capacity);
  for (const Ring* ring : {&rare_, &often_}) {
    const uint64_t end = ring->next.load(std::memory_order_acquire);
    FlightEvent event;
    for (uint64_t number = end - std::min<uint64_t>(end, ring->capacity); number < end; ++number) {
      event = FlightEvent();
      if (ring->Read(number, &event)) events.push_back(event);
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const FlightEvent& a, const FlightEvent& b) { return a.at < b.at; });
  return events;
}

FlightRecorder::Position FlightRecorder::CurrentPosition() const {
  // A process in an operation records few other events. The start of the operation is therefore
  // among the last events.
  constexpr uint64_t kLookBack = 64;
  Position standing;
  standing.completed = completed_.load(std::memory_order_relaxed);
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  const uint64_t end = often_.next.load(std::memory_order_acquire);
  const uint64_t begin = end - std::min<uint64_t>({end, kLookBack, often_.capacity});
  std::vector<std::pair<int32_t, uint64_t>> ended;  // (replica, sequence).
  for (uint64_t number = end; number-- > begin;) {
    FlightEvent event;
    if (!often_.Read(number, &event) || event.generation != generation) continue;
    const std::pair key(event.call.replica, event.call.sequence);
    if (event.kind == FlightKind::kCollectiveEnd) ended.push_back(key);
    if (event.kind != FlightKind::kCollectiveStart ||
        std::find(ended.begin(), ended.end(), key) != ended.end())
      continue;
    // With several replicas, the earliest operation counts, because the others wait for it.
    if (standing.in_flight && standing.call.sequence <= event.call.sequence) continue;
    standing.in_flight = true;
    standing.call = event.call;
    standing.since = event.at;
  }
  return standing;
}

}  // namespace muster
