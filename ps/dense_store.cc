#include "ps/dense_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/push_pull/update_kernels.h"

namespace muster {
namespace {

struct Held {
  mutable absl::Mutex mu;
  bool filled ABSL_GUARDED_BY(mu) = false;
  std::atomic<int64_t> applied = 0;  // here
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
  Standing standing(int chunk) const override;
  absl::StatusOr<Pushed> Replay(int chunk, const Push& push, int64_t number) override;
  int64_t applied() const override;

 private:
  absl::Status CheckIndex(int chunk) const;
  absl::Status Check(int chunk, size_t elements) const;
  absl::Status CheckServing(int chunk, size_t elements) const;
  absl::Status CheckWorker(const PushKey& key) const;
  const RuleSpec& RuleOf(int chunk) const {
    return options_.rules[options_.chunks[chunk].optimizer];
  }
  void Put(int chunk, ChunkState state);
  void Update(int chunk, Held& held, double learning_rate, std::span<const float> gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);
  Pushed PushLocked(int chunk, Held& held, const Push& push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);
  absl::StatusOr<Pushed> ShareLocked(int chunk, Held& held, const Push& push)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);

  const Options options_;
  std::vector<Held> chunks_;
  std::atomic<size_t> filled_ = 0;
  mutable absl::Mutex mu_;                                // after a chunk's
  std::map<int, uint64_t> workers_ ABSL_GUARDED_BY(mu_);  // incarnations
};

absl::Status DenseStoreImpl::CheckIndex(int chunk) const {
  if (chunk >= 0 && chunk < static_cast<int>(chunks_.size())) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("there is no chunk {}: this server holds {}", chunk, chunks_.size()));
}

absl::Status DenseStoreImpl::Check(int chunk, size_t elements) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
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
  Put(chunk, FreshState(RuleOf(chunk), parameters));
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
  for (const auto& [share, gradient] : state.next.gradients)
    MUSTER_RETURN_IF_ERROR(Check(chunk, gradient.size()));
  Put(chunk, std::move(state));
  return absl::OkStatus();
}

absl::StatusOr<ChunkState> DenseStoreImpl::Copy(int chunk) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  return held.state;
}

void DenseStoreImpl::Admit(int worker, uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  workers_[worker] = incarnation;
}

bool DenseStoreImpl::Expel(int worker) {
  uint64_t incarnation = 0;
  {
    absl::MutexLock lock(&mu_);
    const auto found = workers_.find(worker);
    if (found == workers_.end()) return false;
    incarnation = found->second;
    workers_.erase(found);
  }
  // Whoever was admitted still when it came to a chunk's lock is through with it by now.
  std::set<uint64_t> newest;
  for (const Held& held : chunks_) {
    absl::MutexLock lock(&held.mu);
    const auto last = held.state.last.find(worker);
    newest.insert(last != held.state.last.end() && last->second.incarnation == incarnation
                      ? last->second.sequence
                      : 0);
  }
  return newest.size() > 1;
}

absl::Status DenseStoreImpl::CheckWorker(const PushKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(key.worker);
  if (found != workers_.end() && found->second == key.incarnation) return absl::OkStatus();
  return Superseded(
      fmt::format("worker {} was lost, or another process has taken its place", key.worker));
}

void DenseStoreImpl::Update(int chunk, Held& held, double learning_rate,
                            std::span<const float> gradient) {
  ChunkState& state = held.state;
  UpdateRange range{state.parameters, gradient};
  for (size_t s = 0; s < state.slots.size(); ++s) range.slots[s] = state.slots[s].data();
  ApplyUpdate(RuleOf(chunk), learning_rate, ++state.updates, range);
  ++held.applied;
}

Pushed DenseStoreImpl::PushLocked(int chunk, Held& held, const Push& push) {
  ChunkState& state = held.state;
  ChunkState::Last& last = state.last[push.key.worker];
  Pushed pushed;
  pushed.staleness = std::max<int64_t>(0, state.updates - push.pulled);
  pushed.applied = last.incarnation != push.key.incarnation || push.key.sequence > last.sequence;
  if (pushed.applied) {
    Update(chunk, held, push.learning_rate, push.gradient);
    last = {push.key.incarnation, push.key.sequence};
  }
  pushed.updates = state.updates;
  return pushed;
}

absl::StatusOr<Pushed> DenseStoreImpl::ShareLocked(int chunk, Held& held, const Push& push) {
  ChunkState& state = held.state;
  ChunkState::Shares& next = state.next;
  const uint64_t step = push.key.sequence;
  if (push.share < 0 || push.share >= push.shares)
    return ConfigurationError(
        fmt::format("chunk {}: there is no share {} of {}", chunk, push.share, push.shares));
  if (step == 0) return ConfigurationError(fmt::format("chunk {}: there is no step 0", chunk));
  Pushed pushed;
  pushed.updates = state.updates;
  const uint64_t known = next.shares != 0 ? next.step : state.step == 0 ? step : state.step + 1;
  if (step < known) return pushed;
  if (step > known)
    return Superseded(fmt::format("chunk {}: a share of step {} came, where step {} is the next",
                                  chunk, step, known));
  if (next.shares == 0) {
    next.step = step;
    next.shares = push.shares;
  } else if (next.shares != push.shares) {
    return ConfigurationError(fmt::format("chunk {}: step {} has {} shares, not {}", chunk, step,
                                          next.shares, push.shares));
  }
  const auto [own, is_new] = next.gradients.try_emplace(push.share);
  if (!is_new) return pushed;
  own->second.assign(push.gradient.begin(), push.gradient.end());
  if (push.share == 0) next.learning_rate = push.learning_rate;
  pushed.applied = true;
  if (static_cast<int>(next.gradients.size()) < next.shares) return pushed;
  // In the order of the shares, whatever order they came in: the same bits everywhere.
  std::vector<float>& sum = next.gradients.begin()->second;
  for (auto more = std::next(next.gradients.begin()); more != next.gradients.end(); ++more)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more->second[i];
  Update(chunk, held, next.learning_rate, sum);
  state.step = step;
  next = {};
  pushed.updates = state.updates;
  return pushed;
}

absl::StatusOr<Pushed> DenseStoreImpl::Apply(int chunk, const Push& push, std::span<float> out) {
  MUSTER_RETURN_IF_ERROR(CheckServing(chunk, push.gradient.size()));
  if (!out.empty()) MUSTER_RETURN_IF_ERROR(Check(chunk, out.size()));
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  // Under the chunk's lock: whoever is expelled meanwhile is not in the chunk afterwards.
  MUSTER_RETURN_IF_ERROR(CheckWorker(push.key));
  if (push.shares > 0) return ShareLocked(chunk, held, push);
  const Pushed pushed = PushLocked(chunk, held, push);
  std::copy_n(held.state.parameters.begin(), out.size(), out.begin());
  return pushed;
}

absl::StatusOr<Pushed> DenseStoreImpl::Replay(int chunk, const Push& push, int64_t number) {
  MUSTER_RETURN_IF_ERROR(Check(chunk, push.gradient.size()));
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  if (push.shares > 0) return ShareLocked(chunk, held, push);
  ChunkState& state = held.state;
  if (number != state.updates + 1)
    return absl::FailedPreconditionError(fmt::format(
        "chunk {}: update {} came, where {} is the next", chunk, number, state.updates + 1));
  Update(chunk, held, push.learning_rate, push.gradient);
  state.last[push.key.worker] = {push.key.incarnation, push.key.sequence};
  return Pushed{true, state.updates, 0};
}

absl::StatusOr<int64_t> DenseStoreImpl::Pull(int chunk, std::span<float> out) const {
  MUSTER_RETURN_IF_ERROR(CheckServing(chunk, out.size()));
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  std::copy(held.state.parameters.begin(), held.state.parameters.end(), out.begin());
  return held.state.updates;
}

DenseStore::Standing DenseStoreImpl::standing(int chunk) const {
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (!held.filled) return {};
  return {held.state.updates, held.state.step, static_cast<int>(held.state.next.gradients.size())};
}

int64_t DenseStoreImpl::applied() const {
  int64_t most = 0;
  for (const Held& held : chunks_) most = std::max(most, held.applied.load());
  return most;
}

}  // namespace

ChunkState FreshState(const RuleSpec& rule, std::span<const float> parameters) {
  ChunkState state;
  state.parameters.assign(parameters.begin(), parameters.end());
  for (const std::string& slot : ShapedSlots(rule))
    state.slots.emplace_back(parameters.size(), static_cast<float>(InitialSlotValue(rule, slot)));
  return state;
}

std::unique_ptr<DenseStore> DenseStore::Make(Options options) {
  return std::make_unique<DenseStoreImpl>(std::move(options));
}

}  // namespace muster
