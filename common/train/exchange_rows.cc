// ParameterExchange's rows of embedding tables: spread over the servers and their chunks by key.
#include <fmt/format.h>

#include <algorithm>

#include "common/push_pull/packed_rows.h"
#include "common/train/parameter_exchange.h"

namespace muster {
namespace {

// Keys by chunk: those of chunk c of server s are from begin[s * kRowChunks + c] to the next.
struct Spread {
  std::vector<uint32_t> begin;
  std::vector<uint32_t> order;  // places in the batch
};

Spread SpreadKeys(std::span<const uint64_t> keys, int servers) {
  Spread spread;
  std::vector<uint32_t> bucket(keys.size());
  spread.begin.resize(static_cast<size_t>(servers) * kRowChunks + 1);
  for (size_t i = 0; i < keys.size(); ++i) {
    const RowPlace place = PlaceOfRow(keys[i], servers);
    bucket[i] = static_cast<uint32_t>(place.server * kRowChunks + place.chunk);
    ++spread.begin[bucket[i] + 1];
  }
  for (size_t b = 1; b < spread.begin.size(); ++b) spread.begin[b] += spread.begin[b - 1];
  std::vector<uint32_t> next(spread.begin.begin(), spread.begin.end() - 1);
  spread.order.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    spread.order[next[bucket[i]]++] = static_cast<uint32_t>(i);
  return spread;
}

}  // namespace

void ParameterExchange::LayTables() {
  for (size_t v = 0; v < served_.specs.size(); ++v) {
    if (!served_.specs[v].table) continue;
    Table& table = tables_.emplace_back();
    table.variable = static_cast<int>(v);
    for (const std::vector<Chunk>& chunks : layout_.chunks) {
      const auto first = std::find_if(chunks.begin(), chunks.end(), [&](const Chunk& chunk) {
        return chunk.table == table.variable;
      });
      table.first_chunk.push_back(static_cast<int>(first - chunks.begin()));
    }
  }
}

absl::Status ParameterExchange::Pull(int index, std::span<const uint64_t> keys,
                                     std::span<float> rows) {
  if (open_)
    return ProgramError(
        "lookup was called after minimize() in a step: with parameter servers its gradients are on "
        "their way by then; look everything up first");
  const Table& table = tables_[index];
  const auto width = static_cast<size_t>(served_.specs[table.variable].table->width);
  const Spread spread = SpreadKeys(keys, static_cast<int>(table.first_chunk.size()));
  std::vector<uint64_t> ordered(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) ordered[i] = keys[spread.order[i]];
  std::vector<float> pulled(rows.size());
  std::vector<ps::PushPullClient::RowPull> pulls;
  for (size_t b = 0; b + 1 < spread.begin.size(); ++b) {
    const size_t begin = spread.begin[b], count = spread.begin[b + 1] - begin;
    if (count == 0) continue;
    const int server = static_cast<int>(b) / kRowChunks;
    pulls.push_back({server, table.first_chunk[server] + static_cast<int>(b) % kRowChunks,
                     std::span(ordered).subspan(begin, count),
                     std::span(pulled).subspan(begin * width, count * width)});
  }
  MUSTER_RETURN_IF_ERROR(client_->PullRows(pulls));
  for (size_t i = 0; i < keys.size(); ++i)
    std::copy_n(pulled.begin() + static_cast<int64_t>(i * width), width,
                rows.begin() + static_cast<int64_t>(spread.order[i] * width));
  return absl::OkStatus();
}

absl::Status ParameterExchange::Push(int64_t, std::span<const RowGradients> tables) {
  rows_.clear();
  // Shares are summed once all have come: an empty one counts.
  const bool all = turn_.shares > 0;
  std::vector<std::pair<int, int>> places;  // of rows_
  for (size_t t = 0; t < tables.size(); ++t) {
    const Table& table = tables_[t];
    const VariableSpec& spec = served_.specs[table.variable];
    push_.learning_rates[spec.optimizer] = tables[t].learning_rate;
    const auto width = static_cast<size_t>(spec.table->width);
    const std::span<const uint64_t> keys = tables[t].keys;
    const Spread spread = SpreadKeys(keys, static_cast<int>(table.first_chunk.size()));
    for (size_t b = 0; b + 1 < spread.begin.size(); ++b) {
      const size_t begin = spread.begin[b], count = spread.begin[b + 1] - begin;
      if (count == 0 && !all) continue;
      std::vector<uint64_t> own(count);
      std::vector<float> gradients(count * width);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t from = spread.order[begin + i];
        own[i] = keys[from];
        std::copy_n(tables[t].gradients.begin() + static_cast<int64_t>(from * width), width,
                    gradients.begin() + static_cast<int64_t>(i * width));
      }
      rows_.push_back(PackRows(own, gradients));
      const int server = static_cast<int>(b) / kRowChunks;
      places.emplace_back(server, table.first_chunk[server] + static_cast<int>(b) % kRowChunks);
    }
  }
  if (places.empty()) return absl::OkStatus();
  Open();
  for (size_t i = 0; i < places.size(); ++i)
    client_->LaunchRows(places[i].first, places[i].second, rows_[i]);
  return Wait();
}

}  // namespace muster
