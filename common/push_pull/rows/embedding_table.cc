#include "common/push_pull/rows/embedding_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <numeric>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/hash.h"
#include "common/base/prefetch.h"
#include "common/optim/update_kernels.h"
#include "common/push_pull/rows/frozen_rows.h"
#include "common/push_pull/rows/key_counts.h"
#include "common/push_pull/rows/row_initializer.h"
#include "common/push_pull/rows/row_shape.h"
#include "common/push_pull/rows/row_spread.h"
#include "common/push_pull/rows/row_storage.h"
#include "common/push_pull/rows/row_values.h"

namespace muster::push_pull {
namespace {

constexpr size_t kBlock = 32;  // Rows of a 16-bit type that are updated together.
// The number of keys whose entries in the hash table are loaded into the processor's cache at the
// same time, before they are used.
constexpr size_t kTogether = 128;
// The fraction of a limit that is evicted beyond the necessary rows.
constexpr size_t kSpareShare = 16;

int64_t NoteIn(const float* at) {
  int64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
void PutNote(float* at, int64_t value) { std::memcpy(at, &value, sizeof value); }

// Returns the maximum number of rows of a shard, 0 for no limit. If keys are counted, the counts
// use a part of the bytes.
size_t CapOf(const RowLimits& limits, int64_t shards, int64_t row_bytes) {
  if (!limits.capped()) return 0;
  if (limits.admit_after > 1) row_bytes += RowLimits::kCountedPerRow * KeyCounts::kBytesOfEach;
  int64_t most = std::numeric_limits<int64_t>::max();
  if (limits.max_rows > 0) most = (limits.max_rows + shards - 1) / shards;
  if (limits.max_bytes > 0) most = std::min(most, limits.max_bytes / shards / row_bytes);
  return static_cast<size_t>(std::max<int64_t>(1, most));
}

// Returns the maximum number of keys that a shard counts.
size_t MostCounted(size_t cap) {
  return cap == 0 ? RowLimits::kMaxCounted
                  : std::min(RowLimits::kMaxCounted, RowLimits::kCountedPerRow * cap);
}

struct Shard {
  Shard(int64_t floats, size_t cap)
      : rows(floats, static_cast<int64_t>(cap)), counts(MostCounted(cap)) {}
  mutable absl::Mutex mu;
  RowStorage rows ABSL_GUARDED_BY(mu);
  KeyCounts counts ABSL_GUARDED_BY(mu);  // Counts keys that are not admitted yet.
  int64_t evictions ABSL_GUARDED_BY(mu) = 0, refused ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::weak_ptr<FrozenShard>> frozen ABSL_GUARDED_BY(mu);
};

// A batch's keys by shard, each with its position in the batch.
struct Sorted {
  std::vector<uint64_t> hashes;  // The hashes of the batch's keys, in order.
  std::vector<uint32_t> begin;   // The start of each shard, and the end.
  std::vector<uint32_t> places;
  std::span<const uint32_t> of(size_t shard) const {
    return {places.data() + begin[shard], begin[shard + 1] - begin[shard]};
  }
};

// Loads the entries of kTogether keys from places[begin] on into the processor's cache.
void PrefetchEntries(const RowStorage& rows, const Sorted& sorted, std::span<const uint32_t> places,
                     size_t begin) {
  for (const uint32_t place : places.subspan(begin, std::min(kTogether, places.size() - begin)))
    rows.Prefetch(sorted.hashes[place]);
}

// The rows of one shard that a push updates.
struct Updated {
  std::vector<float*> rows;
  std::vector<uint64_t> hashes;  // The hashes of the keys of `rows`.
  std::vector<float> gradients;  // Shape [rows][width].
  // The rows that the push creates.
  std::vector<uint64_t> new_keys;
  std::vector<float*> new_rows;
};

// Returns the number of distinct keys.
size_t CountDistinct(std::span<const uint64_t> keys, std::span<const uint64_t> hashes) {
  thread_local std::vector<uint32_t> numbers;  // A hash table of numbers from 1. 0: free.
  numbers.assign(std::bit_ceil(2 * keys.size() + 1), 0);
  const size_t mask = numbers.size() - 1;
  size_t distinct = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    size_t at = hashes[i] & mask;
    while (numbers[at] != 0 && keys[numbers[at] - 1] != keys[i]) at = (at + 1) & mask;
    distinct += numbers[at] == 0 ? 1 : 0;
    numbers[at] = static_cast<uint32_t>(i + 1);
  }
  return distinct;
}

class EmbeddingTableImpl final : public EmbeddingTable {
 public:
  explicit EmbeddingTableImpl(Options options)
      : options_(options),
        shape_(options_),
        cap_(CapOf(options_.limits, options_.shards, 4 * shape_.floats())),
        initial_row_(FreshTail()) {
    for (int s = 0; s < options_.shards; ++s)
      shards_.push_back(std::make_unique<Shard>(shape_.floats(), cap_));
  }

  absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const override;
  absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                    double learning_rate, bool distinct) override;
  int64_t size() const override { return statistics().rows; }
  int64_t updates() const override { return updates_; }
  int64_t row_elements() const override { return shape_.elements; }
  TableStatistics statistics() const override;
  std::shared_ptr<const Frozen> Freeze() override;
  void Export(const std::function<void(uint64_t, std::span<const float>)>& visit) const override;
  absl::Status Restore(uint64_t key, std::span<const float> row) override;
  void set_updates(int64_t updates) override { updates_ = updates; }
  std::vector<Place> Places() const override;
  void Read(const Place& place, size_t column, float* to) const override;
  std::vector<uint64_t> Counted() const override;
  void RestoreCounted(std::span<const uint64_t> keys_and_counts) override;

 private:
  absl::Status Check(size_t keys, size_t elements) const;
  std::vector<float> FreshTail() const;
  // The low bits of a hash select the entry within a shard, the high bits the shard.
  size_t ShardOf(uint64_t hash) const { return (hash >> 48) & (options_.shards - 1); }
  Sorted Sort(std::span<const uint64_t> keys) const;
  size_t PeekShard(size_t shard, std::span<const uint64_t> keys, const Sorted& sorted,
                   std::span<float> rows) const;
  // Returns null if the key is not admitted yet. MakeRows sets the parameter of a new row.
  float* RowLocked(Shard& shard, uint64_t key, uint64_t hash, int64_t step, Updated* updated) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  void MakeRows(const Updated& updated) const;
  // The part of a push that belongs to one shard.
  struct ShardPush {
    std::span<const uint64_t> keys;
    std::span<const float> gradients;
    const Sorted& sorted;
    std::span<const uint32_t> places;
  };
  void FindLocked(Shard& shard, const ShardPush& part, int64_t step, Updated* updated) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  void NoteUpdates(const Updated& updated, int64_t step) const;
  void ApplyNarrow(double learning_rate, int64_t step, const Updated& updated) const;
  // Must be called before rows change or are evicted.
  void CopyFrozenLocked(Shard& shard, std::span<float* const> rows) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  void EvictLocked(Shard& shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);

  const Options options_;
  const RowShape shape_;
  const size_t cap_;                      // Rows of a shard.
  const std::vector<float> initial_row_;  // The content of a new row after the parameter.
  std::vector<std::unique_ptr<Shard>> shards_;
  std::atomic<int64_t> updates_ = 0;
  mutable std::atomic<int64_t> lookups_ = 0, hits_ = 0;
};

std::vector<float> EmbeddingTableImpl::FreshTail() const {
  std::vector<float> tail;
  for (size_t c = 1; c < shape_.columns.size(); ++c) {
    const RowColumn& column = shape_.columns[c];
    const double value = column.integer ? 0 : InitialSlotValue(options_.rule, column.name);
    tail.insert(tail.end(), static_cast<size_t>(column.elements), static_cast<float>(value));
  }
  return tail;
}

absl::Status EmbeddingTableImpl::Check(size_t keys, size_t elements) const {
  const size_t expected = keys * static_cast<size_t>(options_.width);
  if (elements == expected) return absl::OkStatus();
  return ConfigurationError(fmt::format("{} keys of width {} have {} elements, not {}", keys,
                                        options_.width, expected, elements));
}

Sorted EmbeddingTableImpl::Sort(std::span<const uint64_t> keys) const {
  Sorted sorted;
  sorted.hashes.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) sorted.hashes[i] = SplitMix64(keys[i]);
  sorted.begin.resize(shards_.size() + 1);
  if (shards_.size() == 1) {
    sorted.begin[1] = static_cast<uint32_t>(keys.size());
    sorted.places.resize(keys.size());
    std::iota(sorted.places.begin(), sorted.places.end(), 0);
    return sorted;
  }
  for (const uint64_t hash : sorted.hashes) ++sorted.begin[ShardOf(hash) + 1];
  for (size_t s = 0; s < shards_.size(); ++s) sorted.begin[s + 1] += sorted.begin[s];
  std::vector<uint32_t> next(sorted.begin.begin(), sorted.begin.end() - 1);
  sorted.places.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    sorted.places[next[ShardOf(sorted.hashes[i])]++] = static_cast<uint32_t>(i);
  return sorted;
}

// ---- Lookups.

absl::Status EmbeddingTableImpl::Peek(std::span<const uint64_t> keys, std::span<float> rows) const {
  MUSTER_RETURN_IF_ERROR(Check(keys.size(), rows.size()));
  const Sorted sorted = Sort(keys);
  size_t hits = 0;
  for (size_t s = 0; s < shards_.size(); ++s)
    if (!sorted.of(s).empty()) hits += PeekShard(s, keys, sorted, rows);
  lookups_ += static_cast<int64_t>(keys.size());
  hits_ += static_cast<int64_t>(hits);
  return absl::OkStatus();
}

size_t EmbeddingTableImpl::PeekShard(size_t index, std::span<const uint64_t> keys,
                                     const Sorted& sorted, std::span<float> rows) const {
  const auto width = static_cast<size_t>(options_.width);
  const Shard& shard = *shards_[index];
  const std::span<const uint32_t> places = sorted.of(index);
  std::vector<uint64_t> missing;
  std::vector<float*> missing_rows;
  {
    absl::ReaderMutexLock lock(&shard.mu);
    for (size_t begin = 0; begin < places.size(); begin += kTogether) {
      const auto block = places.subspan(begin, std::min(kTogether, places.size() - begin));
      PrefetchEntries(shard.rows, sorted, places, begin);
      std::array<const float*, kTogether> found;
      for (size_t i = 0; i < block.size(); ++i) {
        found[i] = shard.rows.At(keys[block[i]], sorted.hashes[block[i]]).row;
        if (found[i] != nullptr) __builtin_prefetch(found[i]);
      }
      for (size_t i = 0; i < block.size(); ++i) {
        const std::span<float> row = rows.subspan(block[i] * width, width);
        if (found[i] != nullptr) {
          Load(options_.type, found[i], row);
        } else {
          missing.push_back(keys[block[i]]);
          missing_rows.push_back(row.data());
        }
      }
    }
  }
  Initialize(options_.initializer, options_.seed, options_.width, missing, missing_rows);
  return places.size() - missing.size();
}

// ---- Updates.

float* EmbeddingTableImpl::RowLocked(Shard& shard, uint64_t key, uint64_t hash, int64_t step,
                                     Updated* updated) const {
  const RowStorage::Entry& entry = shard.rows.At(key, hash);
  if (entry.row != nullptr) return entry.row;
  if (options_.limits.admit_after > 1) {
    if (shard.counts.Add(key) < options_.limits.admit_after) {
      ++shard.refused;
      return nullptr;
    }
    shard.counts.Remove(key);
  }
  float* row = shard.rows.Put(entry, key);
  std::copy(initial_row_.begin(), initial_row_.end(), row + shape_.parameter);
  if (!shape_.notes.empty() && shape_.notes.front() == RowNote::kCreatedAt)
    PutNote(row + shape_.first_note(), step);
  updated->new_keys.push_back(key);
  updated->new_rows.push_back(row);
  return row;
}

void EmbeddingTableImpl::MakeRows(const Updated& updated) const {
  if (options_.type == RowType::kFloat32)
    return Initialize(options_.initializer, options_.seed, options_.width, updated.new_keys,
                      updated.new_rows);
  const auto width = static_cast<size_t>(options_.width);
  std::vector<float> parameters(updated.new_rows.size() * width);
  std::vector<float*> places;
  for (size_t i = 0; i < updated.new_rows.size(); ++i)
    places.push_back(parameters.data() + i * width);
  Initialize(options_.initializer, options_.seed, options_.width, updated.new_keys, places);
  for (size_t i = 0; i < places.size(); ++i)
    StoreNearest(options_.type, {places[i], width}, updated.new_rows[i]);
}

void EmbeddingTableImpl::FindLocked(Shard& shard, const ShardPush& part, int64_t step,
                                    Updated* updated) const {
  const auto width = static_cast<size_t>(options_.width);
  const std::vector<uint64_t>& hashes = part.sorted.hashes;
  updated->rows.clear();
  updated->hashes.clear();
  updated->new_keys.clear();
  updated->new_rows.clear();
  updated->gradients.resize(part.places.size() * width);
  // So that each row that RowLocked adds to the shard is in these lists too.
  updated->new_keys.reserve(part.places.size());
  updated->new_rows.reserve(part.places.size());
  try {
    for (size_t i = 0; i < part.places.size(); ++i) {
      if (i % kTogether == 0) PrefetchEntries(shard.rows, part.sorted, part.places, i);
      const uint32_t place = part.places[i];
      float* row = RowLocked(shard, part.keys[place], hashes[place], step, updated);
      if (row == nullptr) continue;
      __builtin_prefetch(row, 1);
      CopyRow(part.gradients.data() + place * width, options_.width,
              updated->gradients.data() + updated->rows.size() * width);
      updated->rows.push_back(row);
      if (options_.type != RowType::kFloat32) updated->hashes.push_back(hashes[place]);
    }
  } catch (const std::bad_alloc&) {
    MakeRows(*updated);  // The rows that this push has made stay, with their initial values.
    throw;
  }
  updated->gradients.resize(updated->rows.size() * width);
  MakeRows(*updated);
}

void EmbeddingTableImpl::NoteUpdates(const Updated& updated, int64_t step) const {
  for (size_t n = 0; n < shape_.notes.size(); ++n) {
    const int64_t at = shape_.first_note() + 2 * static_cast<int64_t>(n);
    if (shape_.notes[n] == RowNote::kUpdatedAt)
      for (float* row : updated.rows) PutNote(row + at, step);
    if (shape_.notes[n] == RowNote::kUpdateCount)
      for (float* row : updated.rows) PutNote(row + at, NoteIn(row + at) + 1);
  }
}

// Updates a block of rows at a time, in float32. A row that occurs again starts the next block.
void EmbeddingTableImpl::ApplyNarrow(double learning_rate, int64_t step,
                                     const Updated& updated) const {
  const auto width = static_cast<size_t>(shape_.width);
  const int64_t wide = shape_.note_begin, tail = wide - shape_.width;
  std::vector<float> memory(kBlock * static_cast<size_t>(wide));
  std::vector<float*> places(kBlock);
  for (size_t i = 0; i < kBlock; ++i) places[i] = memory.data() + static_cast<int64_t>(i) * wide;
  for (size_t begin = 0, end = 0; begin < updated.rows.size(); begin = end) {
    const auto first = updated.rows.begin() + static_cast<int64_t>(begin);
    for (end = begin; end < updated.rows.size() && end < begin + kBlock; ++end) {
      float* row = updated.rows[end];
      if (std::find(first, updated.rows.begin() + static_cast<int64_t>(end), row) !=
          updated.rows.begin() + static_cast<int64_t>(end))
        break;
      Load(options_.type, row, {places[end - begin], width});
      std::copy_n(row + shape_.parameter, tail, places[end - begin] + shape_.width);
    }
    ApplyRowUpdates(options_.rule, learning_rate, step,
                    {std::span(places).first(end - begin), updated.gradients.data() + begin * width,
                     shape_.width});
    for (size_t i = begin; i < end; ++i) {
      const float* from = places[i - begin];
      const uint64_t chance = SplitMix64(updated.hashes[i] + static_cast<uint64_t>(step));
      StoreRounded(options_.type, {from, width}, chance, updated.rows[i]);
      std::copy_n(from + shape_.width, tail, updated.rows[i] + shape_.parameter);
    }
  }
}

absl::Status EmbeddingTableImpl::Push(std::span<const uint64_t> keys,
                                      std::span<const float> gradients, double learning_rate,
                                      bool distinct) {
  MUSTER_RETURN_IF_ERROR(Check(keys.size(), gradients.size()));
  const Sorted sorted = Sort(keys);
  if (distinct) {
    const size_t different = CountDistinct(keys, sorted.hashes);
    if (different != keys.size())
      return ConfigurationError(
          fmt::format("{} rows came, but only {} different keys: the gradients of a key are to be "
                      "summed",
                      keys.size(), different));
  }
  const int64_t step = ++updates_;
  Updated updated;
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (sorted.of(s).empty()) continue;
    Shard& shard = *shards_[s];
    absl::MutexLock lock(&shard.mu);
    FindLocked(shard, {keys, gradients, sorted, sorted.of(s)}, step, &updated);
    CopyFrozenLocked(shard, updated.rows);
    ClipRows(options_.clip, options_.width, updated.gradients);
    if (options_.type != RowType::kFloat32) {
      ApplyNarrow(learning_rate, step, updated);
    } else {
      ApplyRowUpdates(options_.rule, learning_rate, step,
                      {updated.rows, updated.gradients.data(), options_.width});
    }
    NoteUpdates(updated, step);
    EvictLocked(shard);
  }
  return absl::OkStatus();
}

void EmbeddingTableImpl::CopyFrozenLocked(Shard& shard, std::span<float* const> rows) const {
  std::erase_if(shard.frozen, [&](const std::weak_ptr<FrozenShard>& one) {
    const auto frozen = one.lock();
    if (frozen != nullptr) frozen->Keep(rows, shape_.floats());
    return frozen == nullptr;
  });
}

void EmbeddingTableImpl::EvictLocked(Shard& shard) const {
  if (cap_ == 0 || shard.rows.size() <= cap_) return;
  struct Candidate {
    int64_t first, second;
    // Ties are broken by hash, because small keys are often the most used ones.
    uint64_t hash, key;
    auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(shard.rows.size());
  const int64_t at = shape_.first_note();
  const auto& entries = shard.rows.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kPrefetchDistance < entries.size() && entries[i + kPrefetchDistance].row != nullptr)
      __builtin_prefetch(entries[i + kPrefetchDistance].row + at);
    const auto& [key, row] = entries[i];
    if (row == nullptr) continue;
    candidates.push_back({NoteIn(row + at), shape_.notes.size() > 1 ? NoteIn(row + at + 2) : 0,
                          SplitMix64(key), key});
  }
  const size_t goes = candidates.size() - (cap_ - cap_ / kSpareShare);
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(goes) - 1,
                   candidates.end());
  for (size_t i = 0; i < goes; ++i) {
    const auto& [first, second, hash, key] = candidates[i];
    if (!shard.frozen.empty()) CopyFrozenLocked(shard, {&shard.rows.At(key, hash).row, 1});
    shard.rows.Erase(key);
  }
  shard.evictions += static_cast<int64_t>(goes);
}

// ---- The whole table.

TableStatistics EmbeddingTableImpl::statistics() const {
  TableStatistics all;
  for (const auto& shard : shards_) {
    absl::ReaderMutexLock lock(&shard->mu);
    all.rows += static_cast<int64_t>(shard->rows.size());
    all.bytes += KeyCounts::kBytesOfEach * static_cast<int64_t>(shard->counts.counts().size());
    all.evictions += shard->evictions;
    all.refused += shard->refused;
  }
  all.bytes += 4 * shape_.floats() * all.rows;
  all.lookups = lookups_;
  all.hits = hits_;
  return all;
}

std::shared_ptr<const EmbeddingTable::Frozen> EmbeddingTableImpl::Freeze() {
  std::vector<FrozenRows::ShardRows> parts;
  int64_t size = 0;
  for (const auto& shard : shards_) {
    const auto frozen = std::make_shared<FrozenShard>();
    absl::MutexLock lock(&shard->mu);
    frozen->rows.reserve(shard->rows.size());
    for (const RowStorage::Entry& entry : shard->rows.entries())
      if (entry.row != nullptr) frozen->rows.push_back(entry);
    parts.push_back({&shard->mu, frozen, size});
    size += static_cast<int64_t>(frozen->rows.size());
    shard->frozen.push_back(frozen);
  }
  return std::make_shared<FrozenRows>(shape_, options_.type, std::move(parts), size);
}

std::vector<EmbeddingTable::Place> EmbeddingTableImpl::Places() const {
  std::vector<Place> places;
  places.reserve(static_cast<size_t>(size()));
  for (const auto& shard : shards_) {
    absl::ReaderMutexLock lock(&shard->mu);
    for (const RowStorage::Entry& entry : shard->rows.entries())
      if (entry.row != nullptr) places.push_back({entry.key, entry.row});
  }
  return places;
}

void EmbeddingTableImpl::Read(const Place& place, size_t column, float* to) const {
  const auto elements = static_cast<size_t>(shape_.columns[column].elements);
  if (column == 0) return Load(options_.type, place.row, {to, elements});
  std::copy_n(place.row + shape_.PlaceOf(column), elements, to);
}

void EmbeddingTableImpl::Export(
    const std::function<void(uint64_t, std::span<const float>)>& visit) const {
  std::vector<float> row(static_cast<size_t>(shape_.elements));
  for (const auto& shard : shards_) {
    absl::ReaderMutexLock lock(&shard->mu);
    for (const RowStorage::Entry& entry : shard->rows.entries()) {
      if (entry.row == nullptr) continue;
      Load(options_.type, entry.row, std::span(row).first(static_cast<size_t>(shape_.width)));
      std::copy_n(entry.row + shape_.parameter, shape_.elements - shape_.width,
                  row.begin() + shape_.width);
      visit(entry.key, row);
    }
  }
}

absl::Status EmbeddingTableImpl::Restore(uint64_t key, std::span<const float> row) {
  if (static_cast<int64_t>(row.size()) != shape_.elements)
    return ConfigurationError(
        fmt::format("a row with its slots has {} elements, not {}", shape_.elements, row.size()));
  const uint64_t hash = SplitMix64(key);
  Shard& shard = *shards_[ShardOf(hash)];
  absl::MutexLock lock(&shard.mu);
  const RowStorage::Entry& entry = shard.rows.At(key, hash);
  float* place = entry.row != nullptr ? entry.row : shard.rows.Put(entry, key);
  CopyFrozenLocked(shard, {&place, 1});
  StoreNearest(options_.type, row.first(static_cast<size_t>(shape_.width)), place);
  std::copy(row.begin() + shape_.width, row.end(), place + shape_.parameter);
  EvictLocked(shard);  // The rows may come from a table with a higher limit.
  return absl::OkStatus();
}

std::vector<uint64_t> EmbeddingTableImpl::Counted() const {
  std::map<uint64_t, int64_t> sorted;
  for (const auto& shard : shards_) {
    absl::ReaderMutexLock lock(&shard->mu);
    sorted.insert(shard->counts.counts().begin(), shard->counts.counts().end());
  }
  std::vector<uint64_t> all;
  for (const auto& [key, count] : sorted) {
    all.push_back(key);
    all.push_back(static_cast<uint64_t>(count));
  }
  return all;
}

void EmbeddingTableImpl::RestoreCounted(std::span<const uint64_t> keys_and_counts) {
  for (size_t i = 0; i + 1 < keys_and_counts.size(); i += 2) {
    Shard& shard = *shards_[ShardOf(SplitMix64(keys_and_counts[i]))];
    absl::MutexLock lock(&shard.mu);
    shard.counts.Set(keys_and_counts[i], static_cast<int64_t>(keys_and_counts[i + 1]));
  }
}

}  // namespace

const std::vector<std::string>& RowTypeNames() {
  static const std::vector<std::string> names = {"float32", "float16", "bfloat16"};
  return names;
}

const std::vector<std::string>& EvictionNames() {
  static const std::vector<std::string> names = {"oldest", "least_recent", "least_frequent"};
  return names;
}

std::unique_ptr<EmbeddingTable> EmbeddingTable::Make(Options options) {
  return std::make_unique<EmbeddingTableImpl>(options);
}

}  // namespace muster::push_pull
