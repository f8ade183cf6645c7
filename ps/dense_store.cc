#include "ps/dense_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/update_kernels.h"

namespace muster {
namespace {

struct Held {
  mutable absl::Mutex mu;
  bool filled ABSL_GUARDED_BY(mu) = false;
  ChunkState state ABSL_GUARDED_BY(mu);
};

class DenseStoreImpl final : public DenseStore {
 public:
  explicit DenseStoreImpl(Options options)
      : options_(std::move(options)), chunks_(options_.chunks.size()) {}

  absl::Status Fill(int chunk, std::span<const float> parameters) override;
  absl::Status Restore(int chunk, ChunkState state) override;
  bool serving() const override { return filled_ == chunks_.size(); }
  absl::StatusOr<ChunkState> Copy(int chunk) const override;
  void Admit(int worker, uint64_t incarnation) override;
  bool Expel(int worker) override;
  absl::StatusOr<Pushed> Apply(int chunk, const Push& push, std::span<float> out) override;
  absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const override;

 private:
  struct Worker {
    uint64_t incarnation = 0;
    uint64_t sequence = 0;  // of the push that came last
    size_t chunks = 0;      // that have it
  };

  absl::Status Check(int chunk, size_t elements) const;
  absl::Status CheckServing(int chunk, size_t elements) const;
  absl::Status CheckWorker(const PushKey& key) const;
  void Count(const PushKey& key);
  const RuleSpec& RuleOf(int chunk) const {
    return options_.rules[options_.chunks[chunk].optimizer];
  }
  void Put(int chunk, ChunkState state);

  const Options options_;
  std::vector<Held> chunks_;
  std::atomic<size_t> filled_ = 0;
  mutable absl::Mutex mu_;  // after a chunk's
  std::map<int, Worker> workers_ ABSL_GUARDED_BY(mu_);
};

absl::Status DenseStoreImpl::Check(int chunk, size_t elements) const {
  if (chunk < 0 || chunk >= static_cast<int>(chunks_.size()))
    return ConfigurationError(
        fmt::format("there is no chunk {}: this server holds {}", chunk, chunks_.size()));
  const auto expected = static_cast<size_t>(options_.chunks[chunk].elements());
  if (elements != expected)
    return ConfigurationError(
        fmt::format("chunk {} has {} elements, not {}", chunk, expected, elements));
  return absl::OkStatus();
}

absl::Status DenseStoreImpl::CheckServing(int chunk, size_t elements) const {
  MUSTER_RETURN_IF_ERROR(Check(chunk, elements));
  if (!serving())
    return absl::UnavailableError(
        fmt::format("{} of {} chunks hold nothing yet", chunks_.size() - filled_, chunks_.size()));
  return absl::OkStatus();
}

void DenseStoreImpl::Put(int chunk, ChunkState state) {
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  held.state = std::move(state);
  if (!std::exchange(held.filled, true)) ++filled_;
}

absl::Status DenseStoreImpl::Fill(int chunk, std::span<const float> parameters) {
  MUSTER_RETURN_IF_ERROR(Check(chunk, parameters.size()));
  ChunkState state;
  state.parameters.assign(parameters.begin(), parameters.end());
  for (const std::string& slot : ShapedSlots(RuleOf(chunk)))
    state.slots.emplace_back(parameters.size(),
                             static_cast<float>(InitialSlotValue(RuleOf(chunk), slot)));
  Put(chunk, std::move(state));
  return absl::OkStatus();
}

absl::Status DenseStoreImpl::Restore(int chunk, ChunkState state) {
  MUSTER_RETURN_IF_ERROR(Check(chunk, state.parameters.size()));
  const size_t slots = ShapedSlots(RuleOf(chunk)).size();
  if (state.slots.size() != slots)
    return ConfigurationError(
        fmt::format("chunk {} has {} slots, not {}", chunk, slots, state.slots.size()));
  for (const std::vector<float>& slot : state.slots)
    MUSTER_RETURN_IF_ERROR(Check(chunk, slot.size()));
  Put(chunk, std::move(state));
  return absl::OkStatus();
}

absl::StatusOr<ChunkState> DenseStoreImpl::Copy(int chunk) const {
  MUSTER_RETURN_IF_ERROR(Check(chunk, chunk < 0 || chunk >= static_cast<int>(chunks_.size())
                                          ? 0
                                          : options_.chunks[chunk].elements()));
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  return held.state;
}

void DenseStoreImpl::Admit(int worker, uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  Worker& w = workers_[worker];
  if (w.incarnation != incarnation) w = {incarnation};
}

bool DenseStoreImpl::Expel(int worker) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return false;
  const bool torn = found->second.chunks != 0 && found->second.chunks != chunks_.size();
  workers_.erase(found);
  return torn;
}

absl::Status DenseStoreImpl::CheckWorker(const PushKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(key.worker);
  if (found != workers_.end() && found->second.incarnation == key.incarnation)
    return absl::OkStatus();
  return Superseded(
      fmt::format("worker {} was lost, or another process has taken its place", key.worker));
}

void DenseStoreImpl::Count(const PushKey& key) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(key.worker);
  if (found == workers_.end() || found->second.incarnation != key.incarnation) return;
  Worker& w = found->second;
  if (w.sequence != key.sequence) w.chunks = 0;
  w.sequence = key.sequence;
  ++w.chunks;
}

absl::StatusOr<Pushed> DenseStoreImpl::Apply(int chunk, const Push& push, std::span<float> out) {
  MUSTER_RETURN_IF_ERROR(CheckServing(chunk, push.gradient.size()));
  if (!out.empty()) MUSTER_RETURN_IF_ERROR(Check(chunk, out.size()));
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  // Under the chunk's lock: whoever is expelled meanwhile is not in the chunk afterwards.
  MUSTER_RETURN_IF_ERROR(CheckWorker(push.key));
  ChunkState& state = held.state;
  ChunkState::Last& last = state.last[push.key.worker];
  Pushed pushed;
  pushed.staleness = std::max<int64_t>(0, state.updates - push.pulled);
  pushed.applied = last.incarnation != push.key.incarnation || push.key.sequence > last.sequence;
  if (pushed.applied) {
    UpdateRange range{state.parameters, push.gradient};
    for (size_t s = 0; s < state.slots.size(); ++s) range.slots[s] = state.slots[s].data();
    ApplyUpdate(RuleOf(chunk), push.learning_rate, ++state.updates, range);
    last = {push.key.incarnation, push.key.sequence};
    Count(push.key);
  }
  pushed.updates = state.updates;
  std::copy_n(state.parameters.begin(), out.size(), out.begin());
  return pushed;
}

absl::StatusOr<int64_t> DenseStoreImpl::Pull(int chunk, std::span<float> out) const {
  MUSTER_RETURN_IF_ERROR(CheckServing(chunk, out.size()));
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  std::copy(held.state.parameters.begin(), held.state.parameters.end(), out.begin());
  return held.state.updates;
}

}  // namespace

std::unique_ptr<DenseStore> DenseStore::Make(Options options) {
  return std::make_unique<DenseStoreImpl>(std::move(options));
}

}  // namespace muster
