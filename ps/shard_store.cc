#include "ps/shard_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/optim/update_kernels.h"

namespace muster::ps {

using push_pull::ChunkPush;
using push_pull::EmbeddingTable;
using push_pull::PackedRows;
using push_pull::Pushed;
using push_pull::RowColumn;
using push_pull::TableStatistics;

// Guarded by the chunk's lock.
class ShardStore::FrozenChunk {
 public:
  bool read = false;
  std::optional<ChunkState> copy;  // Set once the chunk has changed.
};

namespace {

// A chunk of more elements does not stay in a core's caches from one push to the next.
constexpr int64_t kCachedElements = (4 << 20) / sizeof(float);

struct Held {
  mutable absl::Mutex mu;  // Readers that change nothing share it.
  bool filled ABSL_GUARDED_BY(mu) = false;
  std::atomic<int64_t> applied = 0;  // Updates applied on this server.
  ChunkState state ABSL_GUARDED_BY(mu);
  // The results of FreezeDense for which Read was not called, until the chunk changes.
  mutable std::vector<std::shared_ptr<ShardStore::FrozenChunk>> frozen ABSL_GUARDED_BY(mu);
  // The rows of a chunk of a table. `state` then has neither parameters nor slots.
  std::shared_ptr<EmbeddingTable> rows ABSL_GUARDED_BY(mu);
  // Rows of Restore before the last piece.
  std::shared_ptr<EmbeddingTable> coming ABSL_GUARDED_BY(mu);
};

// Also keeps the table alive.
struct FrozenTable {
  std::shared_ptr<EmbeddingTable> table;
  std::shared_ptr<const EmbeddingTable::Frozen> rows;
};

// Copies the rows of a table, with their slots and counts, into a state.
void CopyRows(const EmbeddingTable& table, const std::vector<RowColumn>& columns,
              ChunkState* state) {
  std::vector<uint64_t> keys;
  std::vector<float> rows;
  state->slots.resize(columns.size() - 1);
  table.Export([&](uint64_t key, std::span<const float> row) {
    keys.push_back(key);
    auto from = row.begin();
    for (size_t c = 0; c < columns.size(); ++c) {
      std::vector<float>& into = c == 0 ? rows : state->slots[c - 1];
      into.insert(into.end(), from, from + columns[c].elements);
      from += columns[c].elements;
    }
  });
  state->parameters = push_pull::PackRows(keys, rows);
  state->counted = table.Counted();
}

class ShardStoreImpl final : public ShardStore {
 public:
  explicit ShardStoreImpl(Options options)
      : options_(std::move(options)), chunks_(options_.chunks.size()) {
    std::map<int, int> seen;
    for (const push_pull::Chunk& chunk : options_.chunks) {
      row_chunks_.push_back(seen[chunk.table]++);
      elements_ += chunk.elements();
    }
  }

  absl::Status Fill(int chunk, std::span<const float> parameters) override;
  absl::Status Restore(int chunk, ChunkState state, Piece piece) override;
  bool serving() const override { return filled_ == chunks_.size(); }
  absl::StatusOr<ChunkState> Copy(int chunk) const override;
  absl::StatusOr<FrozenRows> Freeze(int chunk) const override;
  absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const override;
  absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const override;
  std::vector<RowColumn> columns(int chunk) const override {
    return HasRows(chunk) ? EmbeddingTable::Columns(TableOf(chunk)) : std::vector<RowColumn>();
  }
  void Admit(int worker, uint64_t incarnation) override;
  void Expel(int worker) override;
  absl::StatusOr<Pushed> Apply(int chunk, const ChunkPush& push, std::span<float> out) override;
  absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const override;
  absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                   std::span<float> rows) const override;
  ChunkVersion chunk_version(int chunk) const override;
  absl::StatusOr<Pushed> Replay(int chunk, const ChunkPush& push, int64_t number) override;
  int64_t applied() const override;
  std::map<int, TableStatistics> tables() const override;

 private:
  absl::Status CheckIndex(int chunk) const;
  absl::Status Check(int chunk, size_t elements) const;
  // Checks the gradient. It is as long as the chunk and has no keys, or it has whole rows of this
  // chunk.
  absl::StatusOr<PackedRows> CheckPush(int chunk, const ChunkPush& push) const;
  absl::Status CheckPlace(int chunk, std::span<const uint64_t> keys) const;
  absl::Status CheckServing() const;
  bool HasRows(int chunk) const { return options_.chunks[chunk].rows(); }
  const EmbeddingTable::Options& TableOf(int chunk) const {
    return options_.tables.at(options_.chunks[chunk].table);
  }
  absl::Status AddRows(int chunk, const ChunkState& state, EmbeddingTable* table) const;
  absl::Status RestoreRows(int chunk, ChunkState state, Piece piece);
  // Returns the number of a state's vectors besides its parameters.
  size_t NumSlots(int chunk) const {
    return HasRows(chunk) ? EmbeddingTable::Columns(TableOf(chunk)).size() - 1
                          : ShapedSlots(RuleOf(chunk)).size();
  }
  absl::Status CheckWorker(const push_pull::PushKey& key) const;
  const RuleSpec& RuleOf(int chunk) const {
    return options_.rules[options_.chunks[chunk].optimizer];
  }
  // Completes each pending FreezeDense. Called before a chunk changes.
  static void ThawLocked(Held& held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);
  void PutLocked(Held& held, ChunkState state, std::shared_ptr<EmbeddingTable> rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);
  absl::Status Update(int chunk, Held& held, const ChunkPush& push, const PackedRows& gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);
  absl::StatusOr<Pushed> PushLocked(int chunk, Held& held, const ChunkPush& push,
                                    const PackedRows& gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(held.mu);

  const Options options_;
  // Indexed by chunk: the chunk's number among those of its table in this store.
  std::vector<int> row_chunks_;
  int64_t elements_ = 0;  // Elements of all chunks that are not of tables.
  std::vector<Held> chunks_;
  std::atomic<size_t> filled_ = 0;
  mutable absl::Mutex mu_;                                // Locked after a chunk's mutex.
  std::map<int, uint64_t> workers_ ABSL_GUARDED_BY(mu_);  // Incarnations.
};

absl::Status ShardStoreImpl::CheckIndex(int chunk) const {
  if (chunk >= 0 && chunk < static_cast<int>(chunks_.size())) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("there is no chunk {}: this server holds {}", chunk, chunks_.size()));
}

absl::Status ShardStoreImpl::Check(int chunk, size_t elements) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  const auto expected = static_cast<size_t>(options_.chunks[chunk].elements());
  if (elements != expected)
    return ConfigurationError(
        fmt::format("chunk {} has {} elements, not {}", chunk, expected, elements));
  return absl::OkStatus();
}

absl::Status ShardStoreImpl::CheckPlace(int chunk, std::span<const uint64_t> keys) const {
  if (options_.servers == 0) return absl::OkStatus();
  const int server = options_.chunks[chunk].server;
  for (const uint64_t key : keys) {
    const push_pull::RowPlace place = push_pull::PlaceOfRow(key, options_.servers);
    if (place.server != server || place.chunk != row_chunks_[chunk])
      return ConfigurationError(
          fmt::format("chunk {}: key {} came, which belongs to chunk {} of the table on server {}, "
                      "not to chunk {} on server {}",
                      chunk, key, place.chunk, place.server, row_chunks_[chunk], server));
  }
  return absl::OkStatus();
}

absl::StatusOr<PackedRows> ShardStoreImpl::CheckPush(int chunk, const ChunkPush& push) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  PackedRows gradient{{}, push.gradient};
  if (HasRows(chunk)) {
    absl::StatusOr<PackedRows> packed = push_pull::UnpackRows(push.gradient, TableOf(chunk).width);
    if (!packed.ok()) return Annotate(packed.status(), fmt::format("chunk {}: ", chunk));
    gradient = *std::move(packed);
    MUSTER_RETURN_IF_ERROR(CheckPlace(chunk, gradient.keys));
  } else {
    MUSTER_RETURN_IF_ERROR(Check(chunk, push.gradient.size()));
  }
  if (!std::isfinite(push.learning_rate) || push.learning_rate < 0)
    return ConfigurationError(
        fmt::format("chunk {}: {} is no learning rate", chunk, push.learning_rate));
  if (push.pulled < 0)
    return ConfigurationError(
        fmt::format("chunk {}: a push was computed after {} updates", chunk, push.pulled));
  return gradient;
}

absl::Status ShardStoreImpl::CheckServing() const {
  if (!serving())
    return absl::UnavailableError(
        fmt::format("{} of {} chunks hold nothing yet", chunks_.size() - filled_, chunks_.size()));
  return absl::OkStatus();
}

absl::Status ShardStoreImpl::AddRows(int chunk, const ChunkState& state,
                                     EmbeddingTable* table) const {
  const EmbeddingTable::Options& options = TableOf(chunk);
  const auto width = static_cast<size_t>(options.width);
  MUSTER_ASSIGN_OR_RETURN(const PackedRows packed,
                          push_pull::UnpackRows(state.parameters, options.width));
  MUSTER_RETURN_IF_ERROR(CheckPlace(chunk, packed.keys));
  const std::vector<RowColumn> columns = EmbeddingTable::Columns(options);
  for (size_t s = 0; s < state.slots.size(); ++s) {
    const size_t expected = packed.keys.size() * static_cast<size_t>(columns[1 + s].elements);
    if (state.slots[s].size() != expected)
      return ConfigurationError(fmt::format("chunk {}: a slot of {} rows has {} elements, not {}",
                                            chunk, packed.keys.size(), state.slots[s].size(),
                                            expected));
  }
  std::vector<float> row(static_cast<size_t>(table->row_elements()));
  for (size_t i = 0; i < packed.keys.size(); ++i) {
    auto to = std::copy_n(packed.rows.begin() + i * width, width, row.begin());
    for (size_t s = 0; s < state.slots.size(); ++s) {
      const auto elements = static_cast<size_t>(columns[1 + s].elements);
      to = std::copy_n(state.slots[s].begin() + i * elements, elements, to);
    }
    MUSTER_RETURN_IF_ERROR(table->Restore(packed.keys[i], row));
  }
  table->RestoreCounted(state.counted);
  table->set_updates(state.updates);
  return absl::OkStatus();
}

void ShardStoreImpl::ThawLocked(Held& held) {
  for (const std::shared_ptr<FrozenChunk>& frozen : held.frozen) {
    // If nobody else holds the frozen chunk, its cut was dropped.
    if (frozen.use_count() > 1) frozen->copy = held.state;
  }
  held.frozen.clear();
}

void ShardStoreImpl::PutLocked(Held& held, ChunkState state, std::shared_ptr<EmbeddingTable> rows) {
  ThawLocked(held);
  held.state = std::move(state);
  held.rows = std::move(rows);
  if (!std::exchange(held.filled, true)) ++filled_;
}

absl::Status ShardStoreImpl::Fill(int chunk, std::span<const float> parameters) {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  if (HasRows(chunk)) {
    ChunkState state;
    state.parameters.assign(parameters.begin(), parameters.end());
    state.slots.resize(NumSlots(chunk));
    return Restore(chunk, std::move(state), {});
  }
  MUSTER_RETURN_IF_ERROR(Check(chunk, parameters.size()));
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  PutLocked(held, FreshState(RuleOf(chunk), parameters), nullptr);
  return absl::OkStatus();
}

absl::Status ShardStoreImpl::RestoreRows(int chunk, ChunkState state, Piece piece) {
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (piece.first) held.coming = EmbeddingTable::Make(TableOf(chunk));
  if (held.coming == nullptr)
    return ConfigurationError(fmt::format("chunk {}: rows came without those before", chunk));
  if (const absl::Status added = AddRows(chunk, state, held.coming.get()); !added.ok()) {
    held.coming = nullptr;
    return added;
  }
  if (!piece.last) return absl::OkStatus();
  state.parameters = {};
  state.slots.clear();
  state.counted = {};
  PutLocked(held, std::move(state), std::exchange(held.coming, nullptr));
  return absl::OkStatus();
}

absl::Status ShardStoreImpl::Restore(int chunk, ChunkState state, Piece piece) {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  const size_t slots = NumSlots(chunk);
  if (state.slots.size() != slots)
    return ConfigurationError(
        fmt::format("chunk {} has {} slots, not {}", chunk, slots, state.slots.size()));
  if (HasRows(chunk)) return RestoreRows(chunk, std::move(state), piece);
  if (!piece.first || !piece.last)
    return ConfigurationError(fmt::format("chunk {} is of no table: it has to come whole", chunk));
  MUSTER_RETURN_IF_ERROR(Check(chunk, state.parameters.size()));
  for (const std::vector<float>& slot : state.slots)
    MUSTER_RETURN_IF_ERROR(Check(chunk, slot.size()));
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  PutLocked(held, std::move(state), nullptr);
  return absl::OkStatus();
}

absl::StatusOr<ShardStore::FrozenRows> ShardStoreImpl::Freeze(int chunk) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  const Held& held = chunks_[chunk];
  absl::ReaderMutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  if (held.rows == nullptr)
    return ConfigurationError(fmt::format("chunk {} is of no table", chunk));
  const auto kept =
      std::make_shared<const FrozenTable>(FrozenTable{held.rows, held.rows->Freeze()});
  return FrozenRows{
      {kept, kept->rows.get()}, held.state.updates, held.state.last, held.rows->Counted()};
}

absl::StatusOr<std::shared_ptr<ShardStore::FrozenChunk>> ShardStoreImpl::FreezeDense(
    int chunk) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  if (held.rows != nullptr) return ConfigurationError(fmt::format("chunk {} is of a table", chunk));
  std::erase_if(held.frozen, [](const auto& frozen) { return frozen.use_count() == 1; });
  return held.frozen.emplace_back(std::make_shared<FrozenChunk>());
}

absl::StatusOr<ChunkState> ShardStoreImpl::Read(int chunk, FrozenChunk* frozen) const {
  const Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (std::exchange(frozen->read, true))
    return ConfigurationError(fmt::format("chunk {} of a copy was read before", chunk));
  if (frozen->copy) return *std::exchange(frozen->copy, std::nullopt);
  std::erase_if(held.frozen, [&](const auto& other) { return other.get() == frozen; });
  return held.state;
}

absl::StatusOr<ChunkState> ShardStoreImpl::Copy(int chunk) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  const Held& held = chunks_[chunk];
  absl::ReaderMutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  ChunkState state = held.state;
  if (held.rows != nullptr) CopyRows(*held.rows, EmbeddingTable::Columns(TableOf(chunk)), &state);
  return state;
}

void ShardStoreImpl::Admit(int worker, uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  workers_[worker] = incarnation;
}

void ShardStoreImpl::Expel(int worker) {
  {
    absl::MutexLock lock(&mu_);
    if (workers_.erase(worker) == 0) return;
  }
  // Waits for each chunk's lock: pushes admitted before are then complete.
  for (const Held& held : chunks_) absl::ReaderMutexLock lock(&held.mu);
}

absl::Status ShardStoreImpl::CheckWorker(const push_pull::PushKey& key) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto found = workers_.find(key.worker);
  if (found != workers_.end() && found->second == key.incarnation) return absl::OkStatus();
  return Superseded(
      fmt::format("worker {} was lost, or another process has taken its place", key.worker));
}

// Applies a push. Changes nothing if it returns an error.
absl::Status ShardStoreImpl::Update(int chunk, Held& held, const ChunkPush& push,
                                    const PackedRows& gradient) {
  ChunkState& state = held.state;
  if (held.rows != nullptr) {
    const absl::Status pushed =
        held.rows->Push(gradient.keys, gradient.rows, push.learning_rate, /*distinct=*/true);
    if (!pushed.ok()) return Annotate(pushed, fmt::format("chunk {}: ", chunk));
    state.updates = held.rows->updates();
  } else {
    ThawLocked(held);
    UpdateRange range{state.parameters, gradient.rows};
    for (size_t s = 0; s < state.slots.size(); ++s) range.slots[s] = state.slots[s].data();
    ++state.updates;
    if (push.floor) {
      ApplyDifference(push.learning_rate, range.parameter, range.gradient);
    } else {
      ApplyUpdate(RuleOf(chunk), push.learning_rate, state.updates, range);
    }
  }
  ++held.applied;
  state.last[push.key.worker] = {push.key.incarnation, push.key.sequence};
  return absl::OkStatus();
}

absl::StatusOr<Pushed> ShardStoreImpl::PushLocked(int chunk, Held& held, const ChunkPush& push,
                                                  const PackedRows& gradient) {
  ChunkState& state = held.state;
  Pushed pushed;
  pushed.staleness = std::max<int64_t>(0, state.updates - push.pulled);
  const auto last = state.last.find(push.key.worker);
  pushed.applied = last == state.last.end() || last->second.incarnation != push.key.incarnation ||
                   push.key.sequence > last->second.sequence;
  if (pushed.applied) MUSTER_RETURN_IF_ERROR(Update(chunk, held, push, gradient));
  pushed.updates = state.updates;
  return pushed;
}

absl::StatusOr<Pushed> ShardStoreImpl::Apply(int chunk, const ChunkPush& push,
                                             std::span<float> out) {
  MUSTER_ASSIGN_OR_RETURN(const PackedRows gradient, CheckPush(chunk, push));
  MUSTER_RETURN_IF_ERROR(CheckServing());
  if (!out.empty()) MUSTER_RETURN_IF_ERROR(Check(chunk, out.size()));
  const bool refused = !AllFinite(gradient.rows);
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  // Checked under the chunk's lock, so that an expelled worker is not in the chunk afterwards.
  MUSTER_RETURN_IF_ERROR(CheckWorker(push.key));
  Pushed pushed;
  if (refused) {
    pushed.refused = true;
    pushed.updates = held.state.updates;
  } else {
    MUSTER_ASSIGN_OR_RETURN(pushed, PushLocked(chunk, held, push, gradient));
  }
  const auto parameters = std::span<const float>(held.state.parameters).first(out.size());
  if (push.shared && elements_ > kCachedElements) {
    CopyPastCaches(parameters, out.data());
  } else {
    std::copy(parameters.begin(), parameters.end(), out.begin());
  }
  return pushed;
}

absl::StatusOr<Pushed> ShardStoreImpl::Replay(int chunk, const ChunkPush& push, int64_t number) {
  MUSTER_ASSIGN_OR_RETURN(const PackedRows gradient, CheckPush(chunk, push));
  Held& held = chunks_[chunk];
  absl::MutexLock lock(&held.mu);
  if (!held.filled) return absl::UnavailableError(fmt::format("chunk {} holds nothing yet", chunk));
  if (number != held.state.updates + 1)
    return absl::FailedPreconditionError(fmt::format(
        "chunk {}: update {} came, where {} is the next", chunk, number, held.state.updates + 1));
  MUSTER_RETURN_IF_ERROR(Update(chunk, held, push, gradient));
  return Pushed{true, held.state.updates, 0};
}

absl::StatusOr<int64_t> ShardStoreImpl::Pull(int chunk, std::span<float> out) const {
  MUSTER_RETURN_IF_ERROR(Check(chunk, out.size()));
  MUSTER_RETURN_IF_ERROR(CheckServing());
  const Held& held = chunks_[chunk];
  absl::ReaderMutexLock lock(&held.mu);
  std::copy(held.state.parameters.begin(), held.state.parameters.end(), out.begin());
  return held.state.updates;
}

absl::StatusOr<int64_t> ShardStoreImpl::PullRows(int chunk, std::span<const uint64_t> keys,
                                                 std::span<float> rows) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(chunk));
  if (!HasRows(chunk))
    return ConfigurationError(fmt::format("chunk {} is of no embedding table", chunk));
  MUSTER_RETURN_IF_ERROR(CheckPlace(chunk, keys));
  MUSTER_RETURN_IF_ERROR(CheckServing());
  const Held& held = chunks_[chunk];
  absl::ReaderMutexLock lock(&held.mu);
  MUSTER_RETURN_IF_ERROR(held.rows->Peek(keys, rows));
  return held.state.updates;
}

ShardStore::ChunkVersion ShardStoreImpl::chunk_version(int chunk) const {
  const Held& held = chunks_[chunk];
  absl::ReaderMutexLock lock(&held.mu);
  if (!held.filled) return {};
  return {held.state.updates};
}

std::map<int, TableStatistics> ShardStoreImpl::tables() const {
  std::map<int, TableStatistics> all;
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const Held& held = chunks_[c];
    absl::ReaderMutexLock lock(&held.mu);
    if (held.rows != nullptr) all[options_.chunks[c].table] += held.rows->statistics();
  }
  return all;
}

int64_t ShardStoreImpl::applied() const {
  int64_t most = 0;
  for (const Held& held : chunks_) most = std::max(most, held.applied.load());
  return most;
}

}  // namespace

ChunkState RowsOf(const EmbeddingTable::Frozen& rows, const std::vector<RowColumn>& columns,
                  int64_t first, int64_t count) {
  ChunkState state;
  std::vector<uint64_t> keys(static_cast<size_t>(count));
  rows.ReadKeys(first, keys);
  int64_t begin = 0;
  for (const RowColumn& column : columns) {
    std::vector<float> values(static_cast<size_t>(count * column.elements));
    rows.Read(first, count, begin, column.elements, values.data());
    begin += column.elements;
    if (begin == column.elements) {
      state.parameters = push_pull::PackRows(keys, values);
    } else {
      state.slots.push_back(std::move(values));
    }
  }
  return state;
}

ChunkState FreshState(const RuleSpec& rule, std::span<const float> parameters) {
  ChunkState state;
  state.parameters.assign(parameters.begin(), parameters.end());
  for (const std::string& slot : ShapedSlots(rule))
    state.slots.emplace_back(parameters.size(), static_cast<float>(InitialSlotValue(rule, slot)));
  return state;
}

std::unique_ptr<ShardStore> ShardStore::Make(Options options) {
  return std::make_unique<ShardStoreImpl>(std::move(options));
}

}  // namespace muster::ps
