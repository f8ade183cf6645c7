// ParameterExchange's rows of embedding tables: spread over the servers and their chunks by key.
#include <algorithm>

#include "common/push_pull/row_spread.h"
#include "common/train/parameter_exchange.h"

namespace muster {

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

// Of RowSpread's: which server, and which of its chunks.
RowPlace ParameterExchange::PlaceOfChunk(const Table& table, size_t chunk) {
  const auto server = static_cast<int>(chunk / kRowChunks);
  return {server, table.first_chunk[server] + static_cast<int>(chunk % kRowChunks)};
}

absl::Status ParameterExchange::Pull(int index, std::span<const uint64_t> keys,
                                     std::span<float> rows) {
  if (open_)
    return ProgramError(
        "lookup was called after minimize() in a step: with parameter servers its gradients are on "
        "their way by then; look everything up first");
  const Table& table = tables_[index];
  const auto width = static_cast<size_t>(served_.specs[table.variable].table->width);
  RowSpread spread;
  SpreadRows(keys, static_cast<int>(table.first_chunk.size()), &spread);
  std::vector<float> pulled(rows.size());
  std::vector<ps::PushPullClient::RowPull> pulls;
  for (size_t c = 0; c < spread.chunks(); ++c) {
    const size_t begin = spread.begin[c], count = spread.count(c);
    if (count == 0) continue;
    const RowPlace place = PlaceOfChunk(table, c);
    pulls.push_back({place.server, place.chunk, std::span(spread.keys).subspan(begin, count),
                     std::span(pulled).subspan(begin * width, count * width)});
  }
  MUSTER_RETURN_IF_ERROR(client_->PullRows(pulls));
  UnspreadRows(spread, static_cast<int64_t>(width), pulled, rows);
  return absl::OkStatus();
}

absl::Status ParameterExchange::Push(int64_t, std::span<const RowGradients> tables) {
  rows_.clear();
  // Shares are summed once all have come: an empty one counts.
  const bool all = turn_.shares > 0;
  std::vector<RowPlace> places;  // of rows_
  for (size_t t = 0; t < tables.size(); ++t) {
    const Table& table = tables_[t];
    const VariableSpec& spec = served_.specs[table.variable];
    push_.learning_rates[spec.optimizer] = tables[t].learning_rate;
    RowSpread spread;
    SpreadRows(tables[t].keys, static_cast<int>(table.first_chunk.size()), &spread);
    for (size_t c = 0; c < spread.chunks(); ++c) {
      if (spread.count(c) == 0 && !all) continue;
      rows_.push_back(PackChunk(spread, c, spec.table->width, tables[t].gradients));
      places.push_back(PlaceOfChunk(table, c));
    }
  }
  if (places.empty()) return absl::OkStatus();
  Open();
  for (size_t i = 0; i < places.size(); ++i)
    client_->LaunchRows(places[i].server, places[i].chunk, rows_[i]);
  return Wait();
}

}  // namespace muster
