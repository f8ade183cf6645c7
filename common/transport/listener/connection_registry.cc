#include "common/transport/listener/connection_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "common/base/logging.h"
#include "common/base/peer_text.h"

namespace muster::transport {
namespace {

// The maximum number of accepted connections with one (from, channel) that were not taken yet.
constexpr size_t kMaxPerKey = 4;
// A generation is (term << 32) | count. The term increases by one when a chief starts. This process
// cannot have missed this many terms, so a generation further ahead is refused.
constexpr uint64_t kMaxTermsAheadOfAdmitted = 1024;
constexpr size_t kMaxSources = 256;  // Refusals of more sources are counted together.

bool Jumps(uint64_t generation, uint64_t newest) {
  return newest != 0 && (generation >> 32) > (newest >> 32) + kMaxTermsAheadOfAdmitted;
}

void SendAnswer(ByteStream& stream, HelloResult verdict, uint64_t generation) {
  const auto answer = EncodeAnswer(verdict, generation);
  const iovec from{const_cast<std::byte*>(answer.data()), answer.size()};
  // The empty buffer of a new socket accepts 16 bytes. If it does not, the other side's deadline
  // passes.
  (void)stream.Write({&from, 1});
}

}  // namespace

ConnectionRegistry::ConnectionRegistry(const ListenerOptions& options)
    : security_(options.security),
      max_early_(options.max_held),
      max_early_each_(std::min(options.max_held_each, options.max_held)),
      early_timeout_(options.hold_timeout),
      wrap_(options.wrap) {}

void ConnectionRegistry::Route(Arrived arrived) {
  absl::MutexLock lock(&mutex_);
  ExpireLocked();
  if (arrived.hello.generation > newest_) return QueueEarlyLocked(std::move(arrived));
  InsertLocked(std::move(arrived));
  ChangedLocked();
}

// If an owner has too many held connections, refuses the owner's oldest one. If there are too many
// in total, refuses the oldest one of the owner with the most. The refused side dials again.
void ConnectionRegistry::QueueEarlyLocked(Arrived arrived) {
  if (Jumps(arrived.hello.generation, newest_))
    return RefuseLocked(std::move(arrived), HelloResult::kNotExpected,
                        fmt::format("its generation is far ahead of {:#x}", newest_));
  if (max_early_ == 0)
    return RefuseLocked(std::move(arrived), HelloResult::kBusy, "no early connections are held");
  const MonotonicTime until = Clock::now() + early_timeout_;
  early_.push_back({std::move(arrived), until});
  std::map<std::string, size_t> counts;
  for (const EarlyConnection& early : early_) ++counts[early.owner()];
  std::string owner = early_.back().owner();
  const bool too_many_of_one = counts[owner] > max_early_each_;
  if (!too_many_of_one && early_.size() <= max_early_) return;
  if (!too_many_of_one) {
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    owner = std::max_element(counts.begin(), counts.end(), fewer)->first;
  }
  const auto oldest = std::find_if(early_.begin(), early_.end(), [&](const EarlyConnection& early) {
    return early.owner() == owner;
  });
  Arrived leaves = std::move(oldest->arrived);
  early_.erase(oldest);
  RefuseLocked(std::move(leaves), HelloResult::kBusy, "too many early connections are held");
}

void ConnectionRegistry::Admit(uint64_t generation, int to, const std::string& ticket) {
  absl::MutexLock lock(&mutex_);
  newest_ = std::max(newest_, generation);
  generations_[generation] = {to, ticket, {}};
  ExpireLocked();
  for (auto next = early_.begin(); next != early_.end();) {
    const auto i = next++;
    if (i->arrived.hello.generation > newest_) continue;
    std::list<EarlyConnection> one;
    one.splice(one.end(), early_, i);
    try {
      InsertLocked(std::move(one.front().arrived));
    } catch (const std::bad_alloc&) {
      LogWarning(
          "closed a data connection that arrived before its generation: no memory is left for it");
    }
  }
  ChangedLocked();
}

void ConnectionRegistry::Leave(uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  generations_.erase(generation);
}

std::unique_ptr<DataConnection> ConnectionRegistry::Take(uint64_t generation, Key key) {
  absl::MutexLock lock(&mutex_);
  const auto found = generations_.find(generation);
  if (found == generations_.end()) return nullptr;
  Slots& slots = found->second.slots;
  return TakeLocked(slots, slots.find(key));
}

std::unique_ptr<DataConnection> ConnectionRegistry::TakeAny(uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  const auto found = generations_.find(generation);
  if (found == generations_.end()) return nullptr;
  Slots& slots = found->second.slots;
  return TakeLocked(slots, slots.begin());
}

void ConnectionRegistry::Refused(const Visitor& visitor, std::string_view why) {
  absl::MutexLock lock(&mutex_);
  LogRefusalLocked(visitor, why);
}

void ConnectionRegistry::Changed() {
  absl::MutexLock lock(&mutex_);
  ChangedLocked();
}

void ConnectionRegistry::WaitForChange(uint64_t* seen, Duration limit) {
  absl::MutexLock lock(&mutex_);
  if (changes_ == *seen) changed_.WaitFor(&mutex_, limit);
  *seen = changes_;
}

std::unique_ptr<DataConnection> ConnectionRegistry::TakeLocked(Slots& slots, Slots::iterator at) {
  if (at == slots.end()) return nullptr;
  Arrived arrived = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) slots.erase(at);
  const Hello& hello = arrived.hello;
  return std::make_unique<DataConnection>(
      std::move(arrived.stream),
      ConnectionInfo{hello.generation, hello.from, hello.to, hello.channel, arrived.visitor.remote,
                     arrived.visitor.peer});
}

void ConnectionRegistry::InsertLocked(Arrived arrived) {
  const auto found = generations_.find(arrived.hello.generation);
  if (found == generations_.end())
    return RefuseLocked(std::move(arrived), HelloResult::kPastGeneration,
                        "it belongs to a past generation");
  if (!SameTicket(found->second.ticket, arrived.hello.ticket))
    return RefuseLocked(std::move(arrived), HelloResult::kWrongTicket, "it holds a wrong ticket");
  const int to = found->second.to;
  Slots& slots = found->second.slots;
  const Key key{arrived.hello.from, arrived.hello.channel};
  const auto same = slots.find(key);
  if ((to != kAnyone && arrived.hello.to != to) ||
      (same != slots.end() && same->second.size() >= kMaxPerKey))
    return RefuseLocked(std::move(arrived), HelloResult::kNotExpected, "it is not expected");
  // All memory is allocated before the answer: an accepted connection has its slot.
  Slots fresh;
  std::list<Arrived>& slot = fresh[key];
  slot.push_back(std::move(arrived));
  SendAnswer(*slot.back().stream, HelloResult::kAccepted, slot.back().hello.generation);
  if (same == slots.end())
    slots.merge(fresh);
  else
    same->second.splice(same->second.end(), slot);
}

void ConnectionRegistry::RefuseLocked(Arrived arrived, HelloResult verdict, std::string_view why) {
  SendAnswer(*arrived.stream, verdict, arrived.hello.generation);
  LogRefusalLocked(arrived.visitor,
                   fmt::format("{} (generation {:#x}, from {} to {})", why,
                               arrived.hello.generation, arrived.hello.from, arrived.hello.to));
}

void ConnectionRegistry::ExpireLocked() {
  const MonotonicTime now = Clock::now();
  early_.remove_if([&](const EarlyConnection& h) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (h.until > now) return false;
    LogRefusalLocked(h.arrived.visitor, "its generation was never formed here");
    return true;
  });
}

// Limits the lines for each source, so that a port scan neither fills the log nor hides the
// refusals of other sources. After ten refusals of a source, only logs the 16th, the 32nd, the 64th
// and so on.
void ConnectionRegistry::LogRefusalLocked(const Visitor& visitor, std::string_view why) {
  const bool known = refused_.contains(visitor.source) || refused_.size() < kMaxSources;
  const uint64_t count = ++refused_[known ? visitor.source : ""];
  if (count > 10 && (count & (count - 1)) != 0) return;
  LogWarning("closed a data connection from {}{}: {}{}", visitor.remote,
             visitor.peer.empty() ? "" : fmt::format(" ({})", visitor.peer), SanitizePeerText(why),
             count > 10 ? fmt::format(" ({} so far{})", count, known ? " from there" : "") : "");
}

void ConnectionRegistry::ChangedLocked() {
  ++changes_;
  changed_.SignalAll();
}

}  // namespace muster::transport
