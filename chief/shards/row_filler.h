// RowFiller reads the rows of embedding tables from a checkpoint, and sends them to the servers (ps
// tasks) that will store them. It reads and sends some rows at a time, so the chief never holds a
// whole table in memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chief/shards/shard_client.h"
#include "common/checkpoint/row_source.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/rows/embedding_table.h"

namespace muster::chief {

// An embedding table that servers store.
struct ServedTable {
  int variable = 0;  // Index of the table among the variables.
  std::string name;
  push_pull::EmbeddingTable::Options options;
};

class RowFiller {
 public:
  // A shard is a part of the variables. Fillings maps a shard to streams, one for each server
  // (primary or backup) that will hold the shard. A shard without a stream gets no rows.
  using Fillings = std::map<int, std::vector<ShardClient::Filling*>>;
  // `layout` and `fillings` must outlive this object.
  RowFiller(const push_pull::Layout& layout, const Fillings& fillings)
      : layout_(layout), fillings_(fillings) {}

  // Fills the chunks (parts) of the table in the shards of `fillings`. If `sources` is empty, the
  // chunks get no rows. Not thread-safe.
  absl::Status Fill(const ServedTable& table, const checkpoint::RowSources& sources);

 private:
  // The rows of a chunk that were read and not sent yet.
  struct PendingRows {
    int chunk = 0;
    std::vector<uint64_t> keys;
    std::vector<float> rows;  // Each row is followed by its optimizer slots.
  };
  absl::Status Send(int shard, PendingRows* pending, bool last);

  const push_pull::Layout& layout_;
  const Fillings& fillings_;
  std::vector<push_pull::RowColumn> columns_;
  int64_t elements_ = 0;  // The number of elements of a row with its slots.
  int64_t updates_ = 0;   // The table's number of updates, according to the checkpoint.
  // Keyed by shard. Each vector has one entry for each chunk of the table in the shard.
  std::map<int, std::vector<PendingRows>> pending_;
};

}  // namespace muster::chief
