#include "common/push_pull/embedding_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/hash.h"
#include "common/push_pull/update_kernels.h"

namespace muster {
namespace {

constexpr size_t kAhead = 8;             // keys between the fetch of an index entry and its use
constexpr int64_t kSlabBytes = 1 << 20;  // rows are made in slabs, and never move
const std::vector<std::string> kInitializerNames = {"zeros", "constant", "uniform", "normal"};

double Unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }  // [0, 1)

void Initialize(const Initializer& how, uint64_t seed, uint64_t key, std::span<float> row) {
  uint64_t state = SplitMix64(seed) ^ SplitMix64(key);
  for (float& element : row) {
    switch (how.kind) {
      case Initializer::Kind::kZeros:
        element = 0;
        break;
      case Initializer::Kind::kConstant:
        element = static_cast<float>(how.scale);
        break;
      case Initializer::Kind::kUniform:
        element = static_cast<float>(how.scale * (2 * Unit(state = SplitMix64(state)) - 1));
        break;
      case Initializer::Kind::kNormal: {  // Box and Muller
        const double radius = std::sqrt(-2 * std::log(1 - Unit(state = SplitMix64(state))));
        element = static_cast<float>(
            how.scale * radius * std::cos(2 * std::numbers::pi * Unit(state = SplitMix64(state))));
        break;
      }
    }
  }
}

// Keys to rows: open addressing with linear probing, at most half full.
class Index {
 public:
  struct Entry {
    uint64_t key = 0;
    float* row = nullptr;  // null: free
  };
  Index() : entries_(64) {}

  void Prefetch(uint64_t hash) const { __builtin_prefetch(&entries_[hash & Mask()]); }
  // The key's entry, or the free one where it belongs.
  Entry& At(uint64_t key, uint64_t hash) { return entries_[PlaceOf(key, hash)]; }
  const Entry& At(uint64_t key, uint64_t hash) const { return entries_[PlaceOf(key, hash)]; }
  void Put(Entry& free, uint64_t key, float* row) {
    free = {key, row};
    if (2 * ++size_ > entries_.size()) Grow();
  }
  size_t size() const { return size_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  size_t Mask() const { return entries_.size() - 1; }
  size_t PlaceOf(uint64_t key, uint64_t hash) const {
    size_t at = hash & Mask();
    while (entries_[at].row != nullptr && entries_[at].key != key) at = (at + 1) & Mask();
    return at;
  }
  void Grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.row != nullptr) At(entry.key, SplitMix64(entry.key)) = entry;
  }

  std::vector<Entry> entries_;  // a power of two
  size_t size_ = 0;
};

// A shard's rows as they were: by pointers to rows, which never move, and copies of those that were
// changed since. Under the shard's lock, but for `rows`, which does not change.
struct FrozenShard {
  struct Row {
    uint64_t key;
    const float* row;
  };
  std::vector<Row> rows;
  std::unordered_map<const float*, size_t> places;  // in `copies`
  std::vector<float> copies;

  // To be called before the rows are changed.
  void Keep(std::span<float* const> changing, int64_t stride) {
    for (const float* row : changing) {
      if (!places.try_emplace(row, copies.size()).second) continue;
      copies.insert(copies.end(), row, row + stride);
    }
  }
  const float* At(const Row& row) const {
    const auto kept = places.find(row.row);
    return kept == places.end() ? row.row : copies.data() + kept->second;
  }
};

struct Shard {
  mutable absl::Mutex mu;
  std::vector<std::weak_ptr<FrozenShard>> frozen ABSL_GUARDED_BY(mu);
  Index index ABSL_GUARDED_BY(mu);
  std::vector<std::unique_ptr<float[]>> slabs ABSL_GUARDED_BY(mu);
  int64_t free_rows ABSL_GUARDED_BY(mu) = 0;  // of the last slab
};

// A batch's keys by shard, each with its place in the batch.
struct Sorted {
  std::vector<uint32_t> begin;  // of each shard, and the end
  std::vector<uint32_t> places;
};

class FrozenRows final : public EmbeddingTable::Frozen {
 public:
  struct Part {
    absl::Mutex* mu;
    std::shared_ptr<FrozenShard> shard;
    int64_t begin;  // the first one's number
  };
  FrozenRows(std::vector<Part> parts, int64_t size) : parts_(std::move(parts)), size_(size) {}

  int64_t size() const override { return size_; }
  void ReadKeys(int64_t first, std::span<uint64_t> keys) const override {
    ForEach(first, static_cast<int64_t>(keys.size()),
            [&](const FrozenShard&, const FrozenShard::Row& row, int64_t i) { keys[i] = row.key; });
  }
  void Read(int64_t first, int64_t count, int64_t begin, int64_t elements,
            float* out) const override {
    ForEach(first, count, [&](const FrozenShard& shard, const FrozenShard::Row& row, int64_t i) {
      std::copy_n(shard.At(row) + begin, elements, out + i * elements);
    });
  }

 private:
  // use(shard, row, its number from `first` on), under the shard's lock.
  template <typename Use>
  void ForEach(int64_t first, int64_t count, const Use& use) const {
    for (const Part& part : parts_) {
      const auto rows = static_cast<int64_t>(part.shard->rows.size());
      const int64_t from = std::max<int64_t>(0, first - part.begin);
      const int64_t to = std::min(rows, first + count - part.begin);
      if (from >= to) continue;
      absl::MutexLock lock(part.mu);
      for (int64_t r = from; r < to; ++r) {
        if (r + static_cast<int64_t>(kAhead) < to)
          __builtin_prefetch(part.shard->rows[r + kAhead].row);
        use(*part.shard, part.shard->rows[r], part.begin + r - first);
      }
    }
  }

  const std::vector<Part> parts_;
  const int64_t size_;
};

class EmbeddingTableImpl final : public EmbeddingTable {
 public:
  explicit EmbeddingTableImpl(Options options)
      : options_(options),
        slots_(ShapedSlots(options.rule)),
        stride_(options.width * static_cast<int64_t>(1 + slots_.size())),
        rows_per_slab_(std::max<int64_t>(1, kSlabBytes / 4 / stride_)),
        shards_(options.shards) {}

  absl::Status Pull(std::span<const uint64_t> keys, std::span<float> rows) override;
  absl::Status Peek(std::span<const uint64_t> keys, std::span<float> rows) const override;
  absl::Status Push(std::span<const uint64_t> keys, std::span<const float> gradients,
                    double learning_rate) override;
  int64_t size() const override;
  int64_t updates() const override { return updates_; }
  int64_t row_elements() const override { return stride_; }
  std::shared_ptr<const Frozen> Freeze() override;
  void Export(const std::function<void(uint64_t, std::span<const float>)>& visit) const override;
  absl::Status Restore(uint64_t key, std::span<const float> row) override;
  void set_updates(int64_t updates) override { updates_ = updates; }

 private:
  absl::Status Check(size_t keys, size_t elements) const;
  // The low bits of a hash find the entry within a shard, the high ones the shard.
  size_t ShardOf(uint64_t hash) const { return (hash >> 48) & (shards_.size() - 1); }
  Sorted Sort(std::span<const uint64_t> keys) const;
  float* RowLocked(Shard& shard, uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  // To be called before the rows are changed.
  void KeepFrozenLocked(Shard& shard, std::span<float* const> rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  float* NewRowLocked(Shard& shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  // Calls `use(row, place)` for each of a shard's keys.
  template <typename Use>
  void EachLocked(Shard& shard, std::span<const uint64_t> keys, std::span<const uint32_t> places,
                  const Use& use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);

  const Options options_;
  const std::vector<std::string> slots_;
  const int64_t stride_, rows_per_slab_;
  std::vector<Shard> shards_;
  std::atomic<int64_t> updates_ = 0;
};

absl::Status EmbeddingTableImpl::Check(size_t keys, size_t elements) const {
  const size_t expected = keys * static_cast<size_t>(options_.width);
  if (elements == expected) return absl::OkStatus();
  return ConfigurationError(fmt::format("{} keys of width {} have {} elements, not {}", keys,
                                        options_.width, expected, elements));
}

Sorted EmbeddingTableImpl::Sort(std::span<const uint64_t> keys) const {
  Sorted sorted;
  sorted.begin.resize(shards_.size() + 1);
  if (shards_.size() == 1) {
    sorted.begin[1] = static_cast<uint32_t>(keys.size());
    sorted.places.resize(keys.size());
    std::iota(sorted.places.begin(), sorted.places.end(), 0);
    return sorted;
  }
  for (const uint64_t key : keys) ++sorted.begin[ShardOf(SplitMix64(key)) + 1];
  for (size_t s = 0; s < shards_.size(); ++s) sorted.begin[s + 1] += sorted.begin[s];
  std::vector<uint32_t> next(sorted.begin.begin(), sorted.begin.end() - 1);
  sorted.places.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    sorted.places[next[ShardOf(SplitMix64(keys[i]))]++] = static_cast<uint32_t>(i);
  return sorted;
}

float* EmbeddingTableImpl::NewRowLocked(Shard& shard) {
  if (shard.free_rows == 0) {
    shard.slabs.push_back(std::make_unique_for_overwrite<float[]>(rows_per_slab_ * stride_));
    shard.free_rows = rows_per_slab_;
  }
  return shard.slabs.back().get() + (rows_per_slab_ - shard.free_rows--) * stride_;
}

float* EmbeddingTableImpl::RowLocked(Shard& shard, uint64_t key) {
  Index::Entry& entry = shard.index.At(key, SplitMix64(key));
  if (entry.row != nullptr) return entry.row;
  float* row = NewRowLocked(shard);
  Initialize(options_.initializer, options_.seed, key, {row, static_cast<size_t>(options_.width)});
  for (size_t s = 0; s < slots_.size(); ++s)
    std::fill_n(row + (1 + s) * options_.width, options_.width,
                static_cast<float>(InitialSlotValue(options_.rule, slots_[s])));
  shard.index.Put(entry, key, row);
  return row;
}

void EmbeddingTableImpl::KeepFrozenLocked(Shard& shard, std::span<float* const> rows) {
  std::erase_if(shard.frozen, [&](const std::weak_ptr<FrozenShard>& one) {
    const auto frozen = one.lock();
    if (frozen != nullptr) frozen->Keep(rows, stride_);
    return frozen == nullptr;
  });
}

template <typename Use>
void EmbeddingTableImpl::EachLocked(Shard& shard, std::span<const uint64_t> keys,
                                    std::span<const uint32_t> places, const Use& use) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (i + kAhead < places.size()) shard.index.Prefetch(SplitMix64(keys[places[i + kAhead]]));
    use(RowLocked(shard, keys[places[i]]), places[i]);
  }
}

absl::Status EmbeddingTableImpl::Pull(std::span<const uint64_t> keys, std::span<float> rows) {
  MUSTER_RETURN_IF_ERROR(Check(keys.size(), rows.size()));
  const Sorted sorted = Sort(keys);
  const auto width = static_cast<size_t>(options_.width);
  std::vector<std::pair<const float*, uint32_t>> found;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const std::span places(sorted.places.data() + sorted.begin[s],
                           sorted.begin[s + 1] - sorted.begin[s]);
    if (places.empty()) continue;
    found.clear();
    Shard& shard = shards_[s];
    absl::MutexLock lock(&shard.mu);
    EachLocked(shard, keys, places, [&](const float* row, uint32_t place) {
      __builtin_prefetch(row);
      found.emplace_back(row, place);
    });
    for (const auto& [row, place] : found) std::copy_n(row, width, rows.data() + place * width);
  }
  return absl::OkStatus();
}

absl::Status EmbeddingTableImpl::Peek(std::span<const uint64_t> keys, std::span<float> rows) const {
  MUSTER_RETURN_IF_ERROR(Check(keys.size(), rows.size()));
  const Sorted sorted = Sort(keys);
  const auto width = static_cast<size_t>(options_.width);
  std::vector<std::pair<const float*, uint32_t>> found;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const std::span places(sorted.places.data() + sorted.begin[s],
                           sorted.begin[s + 1] - sorted.begin[s]);
    found.clear();
    const Shard& shard = shards_[s];
    absl::MutexLock lock(&shard.mu);
    for (size_t i = 0; i < places.size(); ++i) {
      if (i + kAhead < places.size()) shard.index.Prefetch(SplitMix64(keys[places[i + kAhead]]));
      const uint64_t key = keys[places[i]];
      const float* row = shard.index.At(key, SplitMix64(key)).row;
      if (row != nullptr) {
        __builtin_prefetch(row);
        found.emplace_back(row, places[i]);
      } else {
        Initialize(options_.initializer, options_.seed, key,
                   rows.subspan(places[i] * width, width));
      }
    }
    for (const auto& [row, place] : found) std::copy_n(row, width, rows.data() + place * width);
  }
  return absl::OkStatus();
}

absl::Status EmbeddingTableImpl::Push(std::span<const uint64_t> keys,
                                      std::span<const float> gradients, double learning_rate) {
  MUSTER_RETURN_IF_ERROR(Check(keys.size(), gradients.size()));
  const int64_t step = ++updates_;
  const Sorted sorted = Sort(keys);
  const auto width = static_cast<size_t>(options_.width);
  std::vector<float*> rows;
  std::vector<float> ordered;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const std::span places(sorted.places.data() + sorted.begin[s],
                           sorted.begin[s + 1] - sorted.begin[s]);
    if (places.empty()) continue;
    rows.clear();
    ordered.resize(places.size() * width);
    for (size_t i = 0; i < places.size(); ++i)
      std::copy_n(gradients.data() + places[i] * width, width, ordered.data() + i * width);
    Shard& shard = shards_[s];
    absl::MutexLock lock(&shard.mu);
    EachLocked(shard, keys, places, [&](float* row, uint32_t) { rows.push_back(row); });
    KeepFrozenLocked(shard, rows);
    ApplyRowUpdates(options_.rule, learning_rate, step, {rows, ordered.data(), options_.width});
  }
  return absl::OkStatus();
}

int64_t EmbeddingTableImpl::size() const {
  int64_t size = 0;
  for (const Shard& shard : shards_) {
    absl::MutexLock lock(&shard.mu);
    size += static_cast<int64_t>(shard.index.size());
  }
  return size;
}

std::shared_ptr<const EmbeddingTable::Frozen> EmbeddingTableImpl::Freeze() {
  std::vector<FrozenRows::Part> parts;
  int64_t size = 0;
  for (Shard& shard : shards_) {
    const auto frozen = std::make_shared<FrozenShard>();
    absl::MutexLock lock(&shard.mu);
    frozen->rows.reserve(shard.index.size());
    for (const Index::Entry& entry : shard.index.entries())
      if (entry.row != nullptr) frozen->rows.push_back({entry.key, entry.row});
    parts.push_back({&shard.mu, frozen, size});
    size += static_cast<int64_t>(frozen->rows.size());
    shard.frozen.push_back(frozen);
  }
  return std::make_shared<FrozenRows>(std::move(parts), size);
}

void EmbeddingTableImpl::Export(
    const std::function<void(uint64_t, std::span<const float>)>& visit) const {
  for (const Shard& shard : shards_) {
    absl::MutexLock lock(&shard.mu);
    for (const Index::Entry& entry : shard.index.entries())
      if (entry.row != nullptr) visit(entry.key, {entry.row, static_cast<size_t>(stride_)});
  }
}

absl::Status EmbeddingTableImpl::Restore(uint64_t key, std::span<const float> row) {
  if (static_cast<int64_t>(row.size()) != stride_)
    return ConfigurationError(
        fmt::format("a row with its slots has {} elements, not {}", stride_, row.size()));
  Shard& shard = shards_[ShardOf(SplitMix64(key))];
  absl::MutexLock lock(&shard.mu);
  Index::Entry& entry = shard.index.At(key, SplitMix64(key));
  float* place = entry.row != nullptr ? entry.row : NewRowLocked(shard);
  KeepFrozenLocked(shard, {&place, 1});
  std::copy(row.begin(), row.end(), place);
  if (entry.row == nullptr) shard.index.Put(entry, key, place);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Initializer> ParseInitializer(const Json& json) {
  const Json object = json.is_string() ? Json::object({{"name", json}}) : json;
  JsonObject reader(object, "initializer");
  std::string name;
  reader.Read("name", &name);
  Initializer initializer;
  const auto found = std::find(kInitializerNames.begin(), kInitializerNames.end(), name);
  if (found == kInitializerNames.end()) {
    reader.Fail("name", fmt::format("must be one of {}, is \"{}\"",
                                    fmt::join(kInitializerNames, ", "), name));
  } else {
    initializer.kind = static_cast<Initializer::Kind>(found - kInitializerNames.begin());
  }
  if (initializer.kind != Initializer::Kind::kZeros) reader.Read("scale", &initializer.scale);
  if (!std::isfinite(initializer.scale)) reader.Fail("scale", "must be a finite number");
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  return initializer;
}

std::vector<RowColumn> EmbeddingTable::Columns(const Options& options) {
  std::vector<RowColumn> columns = {{"rows", options.width}};
  for (const std::string& slot : ShapedSlots(options.rule))
    columns.push_back({slot, options.width});
  return columns;
}

std::unique_ptr<EmbeddingTable> EmbeddingTable::Make(Options options) {
  return std::make_unique<EmbeddingTableImpl>(options);
}

}  // namespace muster
