#include "chief/shards/row_filler.h"

#include <algorithm>

#include "common/push_pull/rows/packed_rows.h"
#include "common/rpc/channel.h"
#include "common/train/embedding/table_rows.h"

namespace muster::chief {
namespace {

// Limit of elements in all buffered rows (16 MiB).
constexpr size_t kMaxElements = 4 << 20;

std::string BytesOf(const std::vector<float>& floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

}  // namespace

absl::Status RowFiller::Fill(const ServedTable& table, const checkpoint::RowSources& sources) {
  columns_ = push_pull::EmbeddingTable::Columns(table.options);
  elements_ = updates_ = 0;
  for (const push_pull::RowColumn& column : columns_) elements_ += column.elements;
  pending_.clear();
  for (const auto& [shard, to] : fillings_)
    for (size_t c = 0; c < layout_.chunks[shard].size(); ++c)
      if (layout_.chunks[shard][c].table == table.variable)
        pending_[shard].push_back({static_cast<int>(c), {}, {}});
  size_t chunks = 0;
  for (const auto& [shard, of_shard] : pending_) chunks += of_shard.size();
  // 16 bytes are for the row's key and its encoding.
  const auto row_elements = static_cast<size_t>(elements_);
  const size_t rows_of_piece = rpc::kMaxPieceBytes / (row_elements * sizeof(float) + 16);
  const size_t most = std::min(kMaxElements / std::max<size_t>(1, chunks),
                               std::max<size_t>(1, rows_of_piece) * row_elements);
  if (!sources.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const TableRows rows,
                            TableRows::Find(sources, table.name, table.options, /*slots=*/true));
    updates_ = rows.updates();
    const int servers = static_cast<int>(layout_.chunks.size());
    const auto elements = static_cast<size_t>(elements_);
    MUSTER_RETURN_IF_ERROR(rows.ForEach(
        [&](std::span<const uint64_t> keys, std::span<const float> values) -> absl::Status {
          for (size_t i = 0; i < keys.size(); ++i) {
            const push_pull::RowPlace place = push_pull::PlaceOfRow(keys[i], servers);
            const auto shard = pending_.find(place.server);
            if (shard == pending_.end()) continue;
            PendingRows& pending = shard->second[place.chunk];
            pending.keys.push_back(keys[i]);
            const auto row = values.subspan(i * elements, elements);
            pending.rows.insert(pending.rows.end(), row.begin(), row.end());
            if (pending.rows.size() >= most)
              MUSTER_RETURN_IF_ERROR(Send(place.server, &pending, /*last=*/false));
          }
          return absl::OkStatus();
        }));
  }
  for (auto& [shard, chunks] : pending_)
    for (PendingRows& pending : chunks)
      MUSTER_RETURN_IF_ERROR(Send(shard, &pending, /*last=*/true));
  return absl::OkStatus();
}

absl::Status RowFiller::Send(int shard, PendingRows* pending, bool last) {
  proto::ChunkContent content;
  content.set_shard(shard);
  content.set_chunk(pending->chunk);
  content.set_updates(updates_);
  content.set_more(!last);
  const size_t count = pending->keys.size();
  const auto elements = static_cast<size_t>(elements_);
  std::vector<float> values;
  size_t begin = 0;
  for (size_t c = 0; c < columns_.size(); begin += columns_[c++].elements) {
    const auto width = static_cast<size_t>(columns_[c].elements);
    values.resize(count * width);
    for (size_t i = 0; i < count; ++i)
      std::copy_n(pending->rows.data() + i * elements + begin, width, values.data() + i * width);
    if (c == 0) {
      content.set_parameters(BytesOf(push_pull::PackRows(pending->keys, values)));
    } else {
      content.add_slots(BytesOf(values));
    }
  }
  pending->keys.clear();
  pending->rows.clear();
  for (ShardClient::Filling* to : fillings_.at(shard)) MUSTER_RETURN_IF_ERROR(to->Write(content));
  return absl::OkStatus();
}

}  // namespace muster::chief
