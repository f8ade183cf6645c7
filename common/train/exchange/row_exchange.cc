#include "common/train/exchange/row_exchange.h"

#include <algorithm>

#include "common/train/embedding/embedding_step.h"
#include "common/train/exchange/prefetched_rows.h"

namespace muster {

using push_pull::kRowChunks;
using push_pull::RowPlace;
using push_pull::RowSpread;
using push_pull::SpreadRows;

RowExchange::RowExchange(const ServedVariables& served, const push_pull::Layout& layout) {
  for (size_t v = 0; v < served.specs.size(); ++v) {
    if (!served.specs[v].table) continue;
    Table& table = tables_.emplace_back();
    table.optimizer = served.specs[v].optimizer;
    table.width = served.specs[v].table->width;
    for (const std::vector<push_pull::Chunk>& chunks : layout.chunks) {
      const auto first = std::find_if(
          chunks.begin(), chunks.end(),
          [v](const push_pull::Chunk& chunk) { return chunk.table == static_cast<int>(v); });
      table.first_chunk.push_back(static_cast<int>(first - chunks.begin()));
    }
    table.others.resize(static_cast<size_t>(table.servers()) * kRowChunks);
  }
}

void RowExchange::UseClient(push_pull::PushPullClient* client) {
  {
    absl::MutexLock lock(&mutex_);
    prefetching_ = client;
    ++clients_;
  }
  prefetched_.reset();
  client_ = client;
}

// Returns the server of a RowSpread chunk, and the chunk's index within the server. RowSpread
// assigns each key to such a chunk.
RowPlace RowExchange::PlaceOfChunk(const Table& table, size_t chunk) {
  const auto server = static_cast<int>(chunk / kRowChunks);
  return {server, table.first_chunk[server] + static_cast<int>(chunk % kRowChunks)};
}

// Makes a fetch of the keys in `spread`. Its rows have the same order.
std::shared_ptr<push_pull::RowFetch> RowExchange::MakeFetch(const Table& table, RowSpread* spread) {
  auto fetch = std::make_shared<push_pull::RowFetch>();
  const auto width = static_cast<size_t>(table.width);
  fetch->keys = std::move(spread->keys);
  fetch->rows.resize(fetch->keys.size() * width);
  for (size_t c = 0; c < spread->chunks(); ++c) {
    const size_t begin = spread->begin[c], count = spread->count(c);
    if (count == 0) continue;
    const RowPlace place = PlaceOfChunk(table, c);
    fetch->pulls.push_back({place.server, place.chunk,
                            std::span<const uint64_t>(fetch->keys).subspan(begin, count),
                            std::span(fetch->rows).subspan(begin * width, count * width)});
  }
  return fetch;
}

// Notes RowPull::others of the used chunks. If `used` is null, all chunks of the fetch are used.
void RowExchange::NoteOthers(const push_pull::RowFetch& fetch, const std::vector<bool>* used,
                             Table* table) {
  for (const push_pull::RowPull& pull : fetch.pulls) {
    const int chunk = pull.shard * kRowChunks + pull.chunk - table->first_chunk[pull.shard];
    if (used != nullptr && !(*used)[chunk]) continue;
    std::optional<int64_t>& others = table->others[chunk];
    others = std::min(others.value_or(pull.others), pull.others);
  }
}

// ---- Prefetching

// Collects the keys that a program's prefetch() names.
class PrefetchImpl {
 public:
  explicit PrefetchImpl(const Replica& replica)
      : replica_(replica), tables_(replica.embeddings().size()) {}
  void Add(EmbeddingHandle table, const at::Tensor& keys) {
    const at::Tensor host = HostKeys(replica_, table, keys, "prefetch");
    tables_[table.index].Add(KeysIn(host), &numbers_);
  }
  push_pull::KeyIndex& table(size_t index) { return tables_[index]; }

 private:
  const Replica& replica_;
  std::vector<push_pull::KeyIndex> tables_;
  std::vector<uint32_t> numbers_;  // Scratch memory.
};

void Prefetch::keys(EmbeddingHandle table, const at::Tensor& keys) { impl_->Add(table, keys); }

absl::StatusOr<std::shared_ptr<PrefetchedRows>> RowExchange::Prefetch(Replica* replica,
                                                                      const data::Batch& batch) {
  if (tables_.empty()) return nullptr;
  PrefetchImpl wanted(*replica);
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("prefetch", [&] {
    muster::Prefetch prefetch(&wanted);
    std::as_const(replica->program()).prefetch(prefetch, batch);
  }));
  const auto rows = std::make_shared<PrefetchedRows>();
  std::vector<std::shared_ptr<push_pull::RowFetch>> fetches;
  for (size_t t = 0; t < tables_.size(); ++t) {
    PrefetchedTable& table = rows->tables.emplace_back();
    table.index = std::move(wanted.table(t));
    const std::vector<uint64_t>& keys = table.index.keys();
    if (keys.empty()) continue;
    RowSpread spread;
    SpreadRows(keys, tables_[t].servers(), &spread);
    fetches.push_back(MakeFetch(tables_[t], &spread));
    table.Add(keys, spread, tables_[t].width, fetches.back());
  }
  if (fetches.empty()) return nullptr;
  absl::MutexLock lock(&mutex_);
  if (prefetching_ == nullptr) return nullptr;
  rows->client = clients_;
  ahead_.push_back(rows);
  prefetching_->FetchRows(fetches);
  return rows;
}

std::vector<std::shared_ptr<PrefetchedRows>> RowExchange::AheadLocked() {
  std::vector<std::shared_ptr<PrefetchedRows>> ahead;
  for (const std::weak_ptr<PrefetchedRows>& weak : ahead_)
    if (auto rows = weak.lock(); rows != nullptr && rows != prefetched_ && rows->client == clients_)
      ahead.push_back(std::move(rows));
  ahead_.assign(ahead.begin(), ahead.end());
  return ahead;
}

void RowExchange::BeginStep(std::shared_ptr<PrefetchedRows> rows) {
  for (Table& table : tables_) table.others.assign(table.others.size(), std::nullopt);
  absl::MutexLock lock(&mutex_);
  prefetched_ = rows != nullptr && rows->client == clients_ ? std::move(rows) : nullptr;
}

// ---- Steps

// A fetch for which a step waits. It has some or all keys of `read`.
struct RowExchange::Asked {
  const RowRead* read;
  RowSpread spread;  // Its places are indices into `read`.
  std::shared_ptr<push_pull::RowFetch> fetch;
};

// Adds a fetch of the keys at `places`, or of all keys if `places` is empty.
void RowExchange::Ask(const RowRead& read, std::span<const size_t> places,
                      std::vector<Asked>* all) {
  const Table& table = tables_[read.table];
  std::vector<uint64_t> some;
  for (const size_t place : places) some.push_back(read.keys[place]);
  Asked& asked = all->emplace_back(Asked{&read, {}, nullptr});
  SpreadRows(places.empty() ? read.keys : some, table.servers(), &asked.spread);
  if (!places.empty())
    for (uint32_t& place : asked.spread.order) place = static_cast<uint32_t>(places[place]);
  asked.fetch = MakeFetch(table, &asked.spread);
}

// Sends all fetches except the first `known`, together.
void RowExchange::FetchAsked(const std::vector<Asked>& all, size_t known) {
  std::vector<std::shared_ptr<push_pull::RowFetch>> fetches;
  for (; known < all.size(); ++known) fetches.push_back(all[known].fetch);
  client_->FetchRows(fetches);
}

// Copies the prefetched rows of `read`. Adds a fetch for its other rows to `all`.
absl::Status RowExchange::TakePrefetched(const RowRead& read, std::vector<Asked>* all) {
  Table& table = tables_[read.table];
  const PrefetchedTable& here = prefetched_->tables[read.table];
  for (const auto& fetch : here.fetches) {
    MUSTER_RETURN_IF_ERROR(client_->Await(*fetch));
  }
  std::vector<size_t> missing;
  std::vector<bool> used(table.others.size());
  here.Take(read.keys, table.width, read.rows, &missing, &used);
  NoteOthers(*here.fetches.front(), &used, &table);
  for (size_t f = 1; f < here.fetches.size(); ++f) NoteOthers(*here.fetches[f], nullptr, &table);
  if (!missing.empty()) Ask(read, missing, all);
  return absl::OkStatus();
}

absl::Status RowExchange::Pull(std::span<const RowRead> reads) {
  const auto here = [&](const RowRead& read) {
    return prefetched_ != nullptr && !prefetched_->tables[read.table].fetches.empty();
  };
  // Sends the fetches of tables without prefetched rows first. Then waits for the prefetches, which
  // were sent earlier.
  std::vector<Asked> all;
  for (const RowRead& read : reads)
    if (!here(read)) Ask(read, {}, &all);
  FetchAsked(all, 0);
  const size_t known = all.size();
  for (const RowRead& read : reads)
    if (here(read)) MUSTER_RETURN_IF_ERROR(TakePrefetched(read, &all));
  FetchAsked(all, known);
  for (const Asked& asked : all) {
    Table& table = tables_[asked.read->table];
    MUSTER_RETURN_IF_ERROR(client_->Await(*asked.fetch));
    NoteOthers(*asked.fetch, nullptr, &table);
    push_pull::UnspreadRows(asked.spread, table.width, asked.fetch->rows, asked.read->rows);
  }
  return absl::OkStatus();
}

bool RowExchange::Push(std::span<const RowGradients> tables, std::span<double> learning_rates,
                       const std::function<void()>& open) {
  size_t elements = 0;
  for (size_t t = 0; t < tables.size(); ++t)
    elements += tables[t].keys.size() * static_cast<size_t>(2 + tables_[t].width);
  if (elements == 0) return false;
  if (packed_.size() < elements) packed_.resize(elements);
  std::vector<push_pull::RowPush> pushes;
  float* at = packed_.data();
  for (size_t t = 0; t < tables.size(); ++t) {
    const Table& table = tables_[t];
    learning_rates[table.optimizer] = tables[t].learning_rate;
    RowSpread spread;
    SpreadRows(tables[t].keys, table.servers(), &spread);
    for (size_t c = 0; c < spread.chunks(); ++c) {
      if (spread.count(c) == 0) continue;
      float* const end = push_pull::PackChunk(spread, c, table.width, tables[t].gradients, at);
      const RowPlace place = PlaceOfChunk(table, c);
      pushes.push_back({place.server, place.chunk, {at, end}, table.others[c].value_or(0)});
      at = end;
    }
  }
  std::vector<std::shared_ptr<PrefetchedRows>> ahead;
  {
    absl::MutexLock lock(&mutex_);
    ahead = AheadLocked();
    open();
    client_->LaunchRows(pushes);
  }
  FetchAgain(tables, ahead);
  return true;
}

// Fetches prefetched rows again if their keys were pushed. The new fetch follows the push, so its
// rows include it.
void RowExchange::FetchAgain(std::span<const RowGradients> pushed,
                             std::span<const std::shared_ptr<PrefetchedRows>> ahead) {
  std::vector<std::shared_ptr<push_pull::RowFetch>> fetches;
  for (const std::shared_ptr<PrefetchedRows>& rows : ahead)
    for (size_t t = 0; t < pushed.size(); ++t) {
      const std::vector<uint64_t> keys = rows->tables[t].Known(pushed[t].keys);
      if (keys.empty()) continue;
      RowSpread spread;
      SpreadRows(keys, tables_[t].servers(), &spread);
      fetches.push_back(MakeFetch(tables_[t], &spread));
      rows->tables[t].Add(keys, spread, tables_[t].width, fetches.back());
    }
  client_->FetchRows(fetches);
}

}  // namespace muster
